// Goal: a record that is not of this hand-off, these tokens and these bytes is a failed transfer
// whose error says which and where; and the records of a target rank tile its memory.
// Method: one field changed at a time; all blocks of a plan counted into one array.
#include "kv/sidecar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kv/testing/plan_layouts.h"

namespace tandem::kv {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr SidecarRecord kExpected{.epoch = (uint64_t{1} << 40) + 7, .digest = 0xabc, .tokens = 13};
constexpr SidecarPlace kPlace{.source_rank = 2, .layer = 5, .is_value = true, .slice = 9};

TEST(Sidecar, OnlyTheSameRecordPasses) {
  EXPECT_TRUE(check_record(kExpected, kExpected, kPlace).ok());
  SidecarRecord epoch = kExpected;
  epoch.epoch = 7;  // an epoch that wrapped in 32 bits would look right
  SidecarRecord tokens = kExpected;
  tokens.tokens = 14;
  SidecarRecord digest = kExpected;
  digest.digest ^= uint64_t{1} << 63;
  const std::pair<SidecarRecord, const char*> cases[] = {
      {epoch, "of epoch 7 instead of 1099511627783"},
      {tokens, "of 14 tokens instead of 13"},
      {digest, "have digest 0000000000000abc, the source sent 8000000000000abc"},
      {{}, "of epoch 0 instead of"},  // never written
  };
  for (const auto& [arrived, text] : cases) {
    const Result<void> checked = check_record(arrived, kExpected, kPlace);
    ASSERT_FALSE(checked.ok()) << text;
    EXPECT_EQ(checked.error().code, Code::kDataLoss);
    EXPECT_THAT(checked.error().what, HasSubstr(text));
    EXPECT_THAT(checked.error().what,
                HasSubstr("from rank 2: V of layer 5, page 9 of the hand-off"));
  }
}

TEST(Sidecar, BlocksTileTheMemoryOfARank) {
  const TransferPlan plan =
      testing::plan_of(testing::layout_of(4, 4, 16), testing::layout_of(4, 2, 32), {32, 101});
  const SidecarMap map(plan);
  // All 101 tokens of a target with no more than the four pages that hold them.
  KvLayout full = testing::layout_of(4, 2, 32);
  full.pages_total = 4;
  const TransferPlan all = testing::plan_of(testing::layout_of(4, 4, 16), full, {0, 101});
  EXPECT_EQ(SidecarMap(all).records_count(1), sidecar_records_max(full, 1));
  ASSERT_EQ(plan.links().size(), 4u);
  EXPECT_EQ(map.block_records(), 2u * 3);
  for (uint32_t rank : {0u, 1u}) {
    std::vector<int> records(map.records_count(rank), 0);
    ASSERT_EQ(records.size(), 2u * 2 * 2 * 3) << "links, layers, K and V, slices";
    for (uint32_t link = 0; link < plan.links().size(); ++link) {
      if (plan.links()[link].target_rank != rank) continue;
      for (uint32_t layer = 0; layer < plan.layers(); ++layer) {
        for (uint64_t i = 0; i < map.block_records(); ++i) {
          ++records.at(map.block_first(link, layer) + i);
        }
      }
    }
    EXPECT_THAT(records, Each(1));
  }
}

}  // namespace
}  // namespace tandem::kv
