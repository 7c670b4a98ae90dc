#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "kv/token_range.h"

namespace tandem::engine {

/// The K and V memory of one rank, for who moves it. Outlived by its rank.
class KvRank {
 public:
  virtual ~KvRank() = default;

  /// All pools in one block: K of layer 0, V of layer 0, K of layer 1 and so on, each as long as
  /// KvLayout::pool_bytes(rank).
  virtual std::span<std::byte> memory() = 0;

  /// Which K or V of a sequence: slices as in ops::KvDigestArgs.
  struct Slices {
    uint32_t layer = 0;
    bool is_value = false;
    std::span<const PageId> pages;  ///< from the one that holds tokens.first on; may be more
    uint32_t first_head = 0;        ///< of this rank's
    uint32_t heads_count = 0;
    kv::TokenRange tokens;      ///< positions in the sequence, at least one
    uint32_t slice_tokens = 0;  ///< of one of the target's pages
  };
  /// digests[i] = XXH3-64 of slice i. On the calling thread; one at a time.
  virtual Result<void> digest(const Slices& slices, std::span<uint64_t> digests) = 0;
};

}  // namespace tandem::engine
