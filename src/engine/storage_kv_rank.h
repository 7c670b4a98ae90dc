#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "engine/kv_rank.h"
#include "engine/kv_storage.h"

namespace tandem::engine {

/// The KvRank of a rank's own storage. Digests run on a stream of its own, beside the steps, so
/// that no step waits for them.
class StorageKvRank final : public KvRank {
 public:
  /// Both outlive it.
  static Result<std::unique_ptr<StorageKvRank>> create(Device& device, KvStorage& storage);

  std::span<std::byte> memory() override { return storage_.memory(); }
  Result<void> digest(const Slices& slices, std::span<uint64_t> digests) override;

 private:
  StorageKvRank(KvStorage& storage, std::unique_ptr<Stream> stream)
      : storage_(storage), stream_(std::move(stream)) {}

  KvStorage& storage_;
  std::unique_ptr<Stream> stream_;
  std::vector<int32_t> pages_;  // of the digests under way, as ops take them
};

}  // namespace tandem::engine
