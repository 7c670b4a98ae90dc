#include "engine/kv_storage.h"

namespace tandem::engine {

Result<KvStorage> KvStorage::create(Device& device, const model::Shard& shard,
                                    const Options& options) {
  const std::array<int64_t, 4> shape{options.pages_count, shard.kv_heads.count(),
                                     options.page_tokens, shard.config.head_dim};
  const size_t bytes =
      static_cast<size_t>(shape[0] * shape[1] * shape[2] * shape[3]) * dtype_bytes(options.dtype);
  KvStorage storage;
  for (int64_t layer = 0; layer < shard.config.layers_count; ++layer) {
    AnyTensor kv[2];
    for (AnyTensor& tensor : kv) {
      storage.buffers_.push_back(TANDEM_TRY(device.allocate(bytes)));
      tensor = {storage.buffers_.back().data(), options.dtype, 4, shape};
    }
    storage.pools_.push_back({.k = kv[0], .v = kv[1]});
  }
  return storage;
}

size_t KvStorage::bytes_per_page(const model::Shard& shard, DType dtype, int64_t page_tokens) {
  return static_cast<size_t>(2 * shard.config.layers_count * shard.kv_heads.count() * page_tokens *
                             shard.config.head_dim) *
         dtype_bytes(dtype);
}

}  // namespace tandem::engine
