// Goal: every rank of a layout knows what it holds; together they hold everything, once, and sums
// keep the bits of one rank where they can; what does not fit is refused with what would.
// Method: configs of the shapes of released models and odd ones, all ranks of many layouts.
#include "model/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig moe(int64_t heads, int64_t kv_heads, int64_t experts) {
  ModelConfig config;
  config.family = ModelFamily::kQwen3Moe;
  config.layers_count = 2;
  config.layer_is_moe = {true, true};
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.experts_count = experts;
  config.vocab_size = 151936;
  return config;
}

ModelConfig dense(int64_t heads, int64_t kv_heads, int64_t intermediate) {
  ModelConfig config = moe(heads, kv_heads, 0);
  config.family = ModelFamily::kQwen3;
  config.layer_is_moe = {false, false};
  config.intermediate_size = intermediate;
  return config;
}

std::vector<Shard> all_shards(const ModelConfig& config, const Layout& layout) {
  std::vector<Shard> shards;
  for (int rank = 0; rank < layout.ranks_count(); ++rank) {
    shards.push_back(Shard::create(config, layout, rank).value());
  }
  return shards;
}

/// Ranks hold consecutive ranges that cover [0, count).
void expect_cover(const std::vector<Shard>& shards, Range Shard::* member, int64_t count) {
  int64_t next = 0;
  for (const Shard& shard : shards) {
    const Range range = shard.*member;
    EXPECT_EQ(range.first, next);
    EXPECT_GT(range.count(), 0);
    next = range.end;
  }
  EXPECT_EQ(next, count);
}

std::string refusal(const ModelConfig& config, const Layout& layout) {
  const auto shard = Shard::create(config, layout, 0);
  return shard.ok() ? "not refused" : shard.error().what;
}

/// Rank after rank, in order, each as many as it has slots.
void expect_experts(const std::vector<Shard>& shards, int32_t count) {
  std::vector<int32_t> all;
  for (const Shard& shard : shards) {
    const comm::ExpertPlacement placement = shard.expert_placement();
    const auto own = placement.experts_of(shard.rank);
    EXPECT_EQ(shard.expert_slots, static_cast<int64_t>(own.size()));
    all.insert(all.end(), own.begin(), own.end());
  }
  ASSERT_EQ(all.size(), static_cast<size_t>(count));
  for (int32_t expert = 0; expert < count; ++expert) {
    EXPECT_EQ(all[static_cast<size_t>(expert)], expert);
  }
}

TEST(Sharding, OneRankHoldsEverything) {
  const Shard whole(moe(64, 4, 128));
  EXPECT_EQ(whole.heads, (Range{0, 64}));
  EXPECT_EQ(whole.expert_slots, 128);
  EXPECT_TRUE(whole.is_whole());
  EXPECT_TRUE(whole.is_exact());
  EXPECT_FALSE(whole.exchanges_tokens());
}

TEST(Sharding, TensorParallelRanksCoverTheModel) {
  for (int tp : {1, 2, 4, 8}) {
    const auto shards = all_shards(moe(64, 4, 128), {.tensor_parallel = tp});
    expect_cover(shards, &Shard::heads, 64);
    expect_cover(shards, &Shard::vocabulary, 151936);
    expect_experts(shards, 128);
    for (const Shard& shard : shards) {
      EXPECT_TRUE(shard.is_exact());
      EXPECT_FALSE(shard.exchanges_tokens());
      EXPECT_EQ(shard.kv_heads.first, shard.heads.first / 16);
      EXPECT_EQ(shard.kv_heads.count(), std::max(1, 4 / tp));
    }
  }
}

TEST(Sharding, KvHeadsAreCopiedWhenThereAreMoreRanks) {
  const auto shards = all_shards(moe(8, 4, 16), {.tensor_parallel = 8});
  std::vector<int64_t> kv_heads;
  for (const Shard& shard : shards) {
    EXPECT_EQ(shard.kv_heads.count(), 1);
    kv_heads.push_back(shard.kv_heads.first);
  }
  EXPECT_THAT(kv_heads, ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
}

TEST(Sharding, DataParallelGroupsShareExpertsOnly) {
  const auto shards = all_shards(moe(8, 4, 16), {.tensor_parallel = 2, .data_parallel = 2});
  expect_experts(shards, 16);
  EXPECT_EQ(shards[0].heads, shards[2].heads);
  EXPECT_EQ(shards[1].heads, (Range{4, 8}));
  EXPECT_EQ(shards[3].vocabulary, shards[1].vocabulary);
  EXPECT_EQ(shards[3].data_rank(), 1);
  EXPECT_TRUE(shards[3].exchanges_tokens());
  EXPECT_EQ(shards[0].exchanged_tokens(5), (Range{0, 3}));
  EXPECT_EQ(shards[3].exchanged_tokens(5), (Range{3, 5}));
  EXPECT_EQ(shards[3].exchanged_tokens(1), (Range{1, 1}));
}

TEST(Sharding, UnevenExpertsAreExchanged) {
  std::vector<int64_t> counts;
  for (const Shard& shard : all_shards(moe(8, 4, 30), {.tensor_parallel = 8})) {
    EXPECT_TRUE(shard.exchanges_tokens());
    counts.push_back(shard.expert_slots);
  }
  EXPECT_THAT(counts, ElementsAre(4, 4, 4, 4, 4, 4, 3, 3));
  expect_experts(all_shards(moe(8, 4, 128), {.data_parallel = 12}), 128);
}

TEST(Sharding, RedundantExpertsTakeSlotsAndMakeTokensTravel) {
  const auto shards = all_shards(moe(8, 4, 16), {.tensor_parallel = 4, .redundant_experts = 6});
  std::vector<int64_t> slots;
  for (const Shard& shard : shards) {
    EXPECT_TRUE(shard.exchanges_tokens());
    slots.push_back(shard.expert_slots);
  }
  EXPECT_THAT(slots, ElementsAre(6, 6, 5, 5));
  EXPECT_TRUE(Shard::create(moe(8, 4, 16), {.tensor_parallel = 4, .rebalances_experts = true}, 0)
                  .value()
                  .exchanges_tokens());
  // Exactly when each of the ranks gets a slot may there be more of them than experts.
  EXPECT_TRUE(Shard::create(moe(8, 4, 4), {.data_parallel = 6, .redundant_experts = 2}, 5).ok());
  EXPECT_THAT(refusal(moe(8, 4, 4), {.data_parallel = 6, .redundant_experts = 1}),
              HasSubstr("at least --num-redundant-experts 2"));
  EXPECT_THAT(refusal(moe(8, 4, 4), {.redundant_experts = 1}),
              HasSubstr("at most --num-redundant-experts 0"));
  EXPECT_THAT(refusal(dense(8, 4, 512), {.tensor_parallel = 2, .redundant_experts = 1}),
              HasSubstr("the model has no experts"));
}

TEST(Sharding, DenseColumnsAreSubtreesWhereNobodyGoesWithout) {
  // 24 partial sums: 16 and 8 are subtrees, 12 and 12 are not.
  const auto two = all_shards(dense(16, 8, 3072), {.tensor_parallel = 2});
  expect_cover(two, &Shard::dense_columns, 3072);
  EXPECT_EQ(two[0].dense_columns.end, 16 * 128);
  EXPECT_TRUE(two[0].is_exact());
  // Subtrees of 8 would leave the fourth rank nothing.
  const auto four = all_shards(dense(16, 8, 3072), {.tensor_parallel = 4});
  expect_cover(four, &Shard::dense_columns, 3072);
  EXPECT_EQ(four[0].dense_columns.count(), 6 * 128);
  EXPECT_FALSE(four[0].is_exact());
  // The last sum may be short.
  expect_cover(all_shards(dense(16, 8, 1000), {.tensor_parallel = 8}), &Shard::dense_columns, 1000);
}

TEST(Sharding, HeadsThatAreNoSubtreeAreTold) {
  EXPECT_FALSE(Shard::create(dense(40, 8, 17408), {.tensor_parallel = 2}, 0).value().is_exact());
  EXPECT_TRUE(Shard::create(dense(32, 8, 16384), {.tensor_parallel = 2}, 0).value().is_exact());
}

TEST(Sharding, WhatDoesNotFitIsRefusedByName) {
  EXPECT_THAT(refusal(moe(8, 4, 16), {.tensor_parallel = 3}),
              HasSubstr("--tensor-parallel-size 3: 8 query heads"));
  EXPECT_THAT(refusal(moe(12, 4, 16), {.tensor_parallel = 3}),
              HasSubstr("4 KV heads can be neither shared nor copied evenly"));
  EXPECT_THAT(refusal(dense(8, 4, 512), {.tensor_parallel = 8}), HasSubstr("use at most 4"));
  EXPECT_THAT(refusal(moe(8, 4, 16), {.data_parallel = 32}),
              HasSubstr("16 experts on 32 ranks: some would have none"));
  EXPECT_THAT(refusal(moe(8, 4, 16), {.tensor_parallel = 0}), HasSubstr("use 1 or more"));
}

}  // namespace
}  // namespace tandem::model
