// Goal: the K and V of a rank lie in one block as its layout says, and its digests are those of the
// slices' bytes (kv_rank.h).
// Method: a block of random bytes that only the layout describes; the expected digests are made by
// ops::kv_digest from bytes that are gathered by hand, token by token, into a pool of one page, so
// that they share neither pages nor heads nor offsets with what is tested. (kv_digest_test.cc holds
// the op against XXH3 itself.) No tolerance.
#include "engine/storage_kv_rank.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "cpu/cpu_device.h"
#include "ops/kv_digest/kv_digest.h"

namespace tandem::engine {
namespace {

constexpr int64_t kPages = 13;
constexpr int64_t kPageTokens = 6;
constexpr int64_t kHeadDim = 10;

model::ModelConfig config() {
  return model::parse_config(R"({"model_type": "qwen3_moe", "rope_theta": 10000,
      "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 8,
      "num_key_value_heads": 4, "head_dim": 10, "num_experts": 4, "num_experts_per_tok": 2,
      "moe_intermediate_size": 16, "intermediate_size": 64, "vocab_size": 100})")
      .value();
}

class StorageKvRankTest : public ::testing::TestWithParam<DType> {
 protected:
  StorageKvRankTest() {
    for (std::byte& byte : kv_->memory()) byte = static_cast<std::byte>(random_());
  }

  uint32_t below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }
  size_t row_bytes() const { return kHeadDim * dtype_bytes(GetParam()); }

  /// The bytes of one head at one position, from the words of kv_rank.h alone.
  const std::byte* row(const KvRank::Slices& s, uint32_t head, uint32_t position) {
    const uint64_t pool = 2 * s.layer + (s.is_value ? 1 : 0);
    const uint64_t page = s.pages[position / kPageTokens - s.tokens.first / kPageTokens].value;
    const uint64_t page_row = uint64_t{head} * kPageTokens + position % kPageTokens;
    return kv_->memory().data() + pool * layout_.pool_bytes(kRank) +
           page * layout_.page_bytes(kRank) + page_row * row_bytes();
  }

  uint64_t expected(const KvRank::Slices& s, uint32_t first, uint32_t end) {
    std::vector<std::byte> bytes;
    for (uint32_t head = s.first_head; head < s.first_head + s.heads_count; ++head) {
      for (uint32_t position = first; position < end; ++position) {
        const std::byte* at = row(s, head, position);
        bytes.insert(bytes.end(), at, at + row_bytes());
      }
    }
    const int64_t rows = static_cast<int64_t>(bytes.size() / row_bytes());
    const int32_t page = 0;
    uint64_t digest = 0;
    EXPECT_TRUE(ops::kv_digest(*device_->make_stream().value(),
                               {.pool = {bytes.data(), GetParam(), 4, {1, 1, rows, kHeadDim}},
                                .pages = TensorView<const int32_t, 1>::make(&page, {1}),
                                .heads_count = 1,
                                .end_token = rows,
                                .slice_tokens = rows,
                                .digests = TensorView<uint64_t, 1>::make(&digest, {1})})
                    .ok());
    return digest;
  }

  static constexpr int kRank = 1;
  std::mt19937 random_{5};
  const std::unique_ptr<cpu::CpuDevice> device_ =
      cpu::CpuDevice::create({.threads_count = 2}).value();
  const model::Shard shard_ = model::Shard::create(config(), {.tensor_parallel = 2}, kRank).value();
  const KvStorage::Options options_{
      .dtype = GetParam(), .pages_count = kPages, .page_tokens = kPageTokens};
  const kv::KvLayout layout_ = KvStorage::group_layout(shard_, options_);
  KvStorage storage_ = KvStorage::create(*device_, shard_, options_).value();
  std::unique_ptr<StorageKvRank> kv_ = StorageKvRank::create(*device_, storage_).value();
};

TEST_P(StorageKvRankTest, PoolsFollowOneAnother) {
  ASSERT_EQ(kv_->memory().size(), 2 * layout_.layers * layout_.pool_bytes(kRank));
  EXPECT_EQ(kv_->memory().size(),
            kPages * KvStorage::bytes_per_page(shard_, GetParam(), kPageTokens));
  ASSERT_EQ(storage_.pools().size(), layout_.layers);
  for (uint32_t layer = 0; layer < layout_.layers; ++layer) {
    std::byte* const k = kv_->memory().data() + 2 * layer * layout_.pool_bytes(kRank);
    EXPECT_EQ(storage_.pools()[layer].k.data, k);
    EXPECT_EQ(storage_.pools()[layer].v.data, k + layout_.pool_bytes(kRank));
  }
}

TEST_P(StorageKvRankTest, DigestsAreOfTheSlicesBytes) {
  std::vector<PageId> all(kPages);
  for (uint32_t i = 0; i < kPages; ++i) all[i] = PageId{i};
  for (int i = 0; i < 300; ++i) {
    std::ranges::shuffle(all, random_);
    const uint32_t first = below(kPages * kPageTokens - 1);
    const uint32_t end = first + 1 + below(kPages * kPageTokens - 1 - first);
    const uint32_t pages_count = (end - 1) / kPageTokens - first / kPageTokens + 1;
    KvRank::Slices slices{.layer = below(layout_.layers),
                          .is_value = below(2) == 1,
                          .pages = std::span(all).first(pages_count),
                          .first_head = below(2),
                          .tokens = {first, end},
                          .slice_tokens = 1 + below(20)};
    slices.heads_count = 1 + below(2 - slices.first_head);
    const uint32_t length = slices.slice_tokens;
    std::vector<uint64_t> wanted;
    for (uint32_t at = first; at < end; at = (at / length + 1) * length) {
      wanted.push_back(expected(slices, at, std::min(end, (at / length + 1) * length)));
    }
    std::vector<uint64_t> digests(wanted.size());
    ASSERT_TRUE(kv_->digest(slices, digests).ok());
    ASSERT_EQ(digests, wanted) << "case " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Element, StorageKvRankTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return dtype_name(info.param); });

}  // namespace
}  // namespace tandem::engine
