#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "kv/kv_layout.h"
#include "model/sharding.h"
#include "ops/attention/kv_pool.h"

namespace tandem::engine {

/// The K and V memory of one rank: per layer two pools of pages, all in one block. Who owns which
/// page is kv's affair; this is only where the numbers lie.
///
/// The block is aligned as the device's memory, and pools follow one another without a gap. So a
/// pool may start where 64 does not divide its place, but always at a multiple of a page's bytes
/// from the block's start, as every page does; a kernel that reads pages can ask for no more.
class KvStorage {
 public:
  struct Options {
    DType dtype = DType::kBF16;
    int64_t pages_count = 0;
    int64_t page_tokens = 0;
  };
  static Result<KvStorage> create(Device& device, const model::Shard& shard,
                                  const Options& options);
  /// Of all layers: what create() allocates for each page.
  static size_t bytes_per_page(const model::Shard& shard, DType dtype, int64_t page_tokens);

  /// Of all ranks of the shard's tensor-parallel group, as other groups see it.
  static kv::KvLayout group_layout(const model::Shard& shard, const Options& options);

  std::span<const ops::KvPool> pools() const { return pools_; }  ///< one per layer
  /// K of layer 0, V of layer 0, K of layer 1 and so on.
  std::span<std::byte> memory() { return buffer_.span<std::byte>(); }

 private:
  Buffer buffer_;
  std::vector<ops::KvPool> pools_;
};

}  // namespace tandem::engine
