#include "engine/kv_storage.h"

#include <utility>

namespace tandem::engine {

Result<KvStorage> KvStorage::create(Device& device, const model::Shard& shard,
                                    const Options& options) {
  const std::array<int64_t, 4> shape{options.pages_count, shard.kv_heads.count(),
                                     options.page_tokens, shard.config.head_dim};
  const size_t pool_bytes =
      static_cast<size_t>(shape[0] * shape[1] * shape[2] * shape[3]) * dtype_bytes(options.dtype);
  const auto layers = static_cast<size_t>(shard.config.layers_count);
  KvStorage storage;
  storage.buffer_ = TANDEM_TRY(device.allocate(2 * layers * pool_bytes));
  std::byte* next = storage.memory().data();
  const auto next_pool = [&] {
    return AnyTensor{std::exchange(next, next + pool_bytes), options.dtype, 4, shape};
  };
  for (size_t layer = 0; layer < layers; ++layer) {
    const AnyTensor k = next_pool();
    storage.pools_.push_back({.k = k, .v = next_pool()});
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
