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

kv::KvLayout KvStorage::group_layout(const model::Shard& shard, const Options& options) {
  TANDEM_CHECK(options.dtype == DType::kBF16 || options.dtype == DType::kF32,
               "K and V are bf16 or f32");
  const model::ModelConfig& config = shard.config;
  kv::KvLayout layout{
      .element = options.dtype == DType::kF32 ? kv::KvElement::kF32 : kv::KvElement::kBF16,
      .layers = static_cast<uint32_t>(config.layers_count),
      .kv_heads = static_cast<uint32_t>(config.kv_heads),
      .head_dim = static_cast<uint32_t>(config.head_dim),
      .page_tokens = static_cast<uint32_t>(options.page_tokens),
      .pages_total = static_cast<uint32_t>(options.pages_count)};
  for (int rank = 0; rank < shard.layout.tensor_parallel; ++rank) {
    const auto heads = model::Shard::create(config, shard.layout, rank).value().kv_heads;
    layout.rank_heads.push_back(
        {static_cast<uint32_t>(heads.first), static_cast<uint32_t>(heads.end)});
  }
  return layout;
}

}  // namespace tandem::engine
