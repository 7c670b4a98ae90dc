#include "engine/storage_kv_rank.h"

#include "ops/kv_digest/kv_digest.h"

namespace tandem::engine {

Result<std::unique_ptr<StorageKvRank>> StorageKvRank::create(Device& device, KvStorage& storage) {
  return std::unique_ptr<StorageKvRank>(
      new StorageKvRank(storage, TANDEM_TRY(device.make_side_stream())));
}

Result<void> StorageKvRank::digest(const Slices& slices, std::span<uint64_t> digests) {
  TANDEM_CHECK(slices.layer < storage_.pools().size(), "a layer of the model");
  const ops::KvPool& layer = storage_.pools()[slices.layer];
  const auto page_tokens = static_cast<uint32_t>(layer.k.shape[2]);
  const uint32_t pages_count =
      (slices.tokens.end - 1) / page_tokens + 1 - slices.tokens.first / page_tokens;
  TANDEM_CHECK(slices.pages.size() >= pages_count, "pages cover the tokens");
  pages_.clear();
  for (PageId page : slices.pages.first(pages_count)) {
    TANDEM_CHECK(page.value < layer.pages(), "a page of the pool");
    pages_.push_back(static_cast<int32_t>(page.value));
  }
  return ops::kv_digest(*stream_, {.pool = slices.is_value ? layer.v : layer.k,
                                   .pages = TensorView<const int32_t, 1>::make(
                                       pages_.data(), {static_cast<int64_t>(pages_.size())}),
                                   .first_head = slices.first_head,
                                   .heads_count = slices.heads_count,
                                   .first_token = slices.tokens.first,
                                   .end_token = slices.tokens.end,
                                   .slice_tokens = slices.slice_tokens,
                                   .digests = TensorView<uint64_t, 1>::make(
                                       digests.data(), {static_cast<int64_t>(digests.size())})});
}

}  // namespace tandem::engine
