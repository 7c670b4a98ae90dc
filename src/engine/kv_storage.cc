#include "engine/kv_storage.h"

namespace tandem::engine {

Result<KvStorage> KvStorage::create(Device& device, const model::ModelConfig& config,
                                    const Options& options) {
  const std::array<int64_t, 4> shape{options.pages_count, config.kv_heads, options.page_tokens,
                                     config.head_dim};
  const size_t bytes =
      static_cast<size_t>(shape[0] * shape[1] * shape[2] * shape[3]) * dtype_bytes(options.dtype);
  KvStorage storage;
  for (int64_t layer = 0; layer < config.layers_count; ++layer) {
    AnyTensor kv[2];
    for (AnyTensor& tensor : kv) {
      storage.buffers_.push_back(TANDEM_TRY(device.allocate(bytes)));
      tensor = {storage.buffers_.back().data(), options.dtype, 4, shape};
    }
    storage.pools_.push_back({.k = kv[0], .v = kv[1]});
  }
  return storage;
}

size_t KvStorage::bytes_per_page(const model::ModelConfig& config, DType dtype,
                                 int64_t page_tokens) {
  return static_cast<size_t>(2 * config.layers_count * config.kv_heads * page_tokens *
                             config.head_dim) *
         dtype_bytes(dtype);
}

}  // namespace tandem::engine
