// Goal: counts, moments, copies of heads and offsets of a plan are what the arithmetic by hand
// says, also at the ends of 32 bits, and what a peer can send is refused (field case A15). Method:
// single cases; transfer_plan_property_test.cc makes the copies of random ones.
#include "kv/transfer_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "kv/testing/plan_layouts.h"

namespace tandem::kv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::layout_of;
using testing::plan_of;

TEST(TransferPlan, AnEmptyRangeIsNoTransfer) {
  const TransferPlan plan = plan_of(layout_of(4, 4, 16), layout_of(4, 1, 32), {32, 32});
  EXPECT_TRUE(plan.empty());
  EXPECT_TRUE(plan.links().empty());
  EXPECT_EQ(plan.slices_count(), 0u);
  EXPECT_EQ(plan.slices_ready(100), 0u);
  EXPECT_EQ(plan.arrivals(0).total(), 0u);
  EXPECT_TRUE(plan.check_pages({}, {}).ok());
}

// What the arithmetic of the counts should give, by hand: two layers, K and V.
TEST(TransferPlan, CountsByHand) {
  // Equal pages of 16, one head a rank: positions 0 to 39 are 3 copies of each pool.
  EXPECT_EQ(plan_of(layout_of(4, 4, 16), layout_of(4, 4, 16), {0, 40}).arrivals(3).copies,
            2u * 2 * 3);
  // One rank each, 4 heads: whole pages go in one copy, the rest head by head.
  EXPECT_EQ(plan_of(layout_of(4, 1, 16), layout_of(4, 1, 16), {0, 40}).arrivals(0).copies,
            2u * 2 * (2 + 4));
  // Pages of 16 into pages of 32: never one copy for two heads. 4 source ranks of one head.
  const TransferPlan plan = plan_of(layout_of(4, 4, 16), layout_of(4, 1, 32), {32, 101});
  EXPECT_EQ(plan.arrivals(0).copies, 2u * 2 * 4 * 5);
  EXPECT_EQ(plan.arrivals(0).sidecars, 2u * 4);
  EXPECT_EQ(plan.target_pages(), (PageRange{1, 4}));
  EXPECT_EQ(plan.source_pages(), (PageRange{2, 7}));
  EXPECT_EQ(plan.slice_tokens(2), (TokenRange{96, 101}));
  // 48 and 64 share a border at 192 only.
  EXPECT_EQ(plan_of(layout_of(1, 1, 48), layout_of(1, 1, 64), {0, 200}).arrivals(0).copies,
            2u * 2 * 7);
}

TEST(TransferPlan, ASliceIsReadyWithItsLastToken) {
  const TransferPlan plan = plan_of(layout_of(1, 1, 16), layout_of(1, 1, 32), {40, 101});
  ASSERT_EQ(plan.slices_count(), 3u);  // [40, 64) [64, 96) [96, 101)
  const std::pair<uint32_t, uint32_t> expected[] = {{0, 0},  {40, 0}, {41, 0},  {63, 0},  {64, 1},
                                                    {95, 1}, {96, 2}, {100, 2}, {101, 3}, {500, 3}};
  for (const auto& [computed, ready] : expected) {
    EXPECT_EQ(plan.slices_ready(computed), ready) << computed;
  }
}

TEST(TransferPlan, CopiesOfAHeadTakeTurns) {
  const KvLayout source = layout_of(4, 8, 16);
  const auto sources = [&](uint32_t ranks, uint32_t spread) {
    std::vector<uint32_t> used;
    const TransferPlan plan = plan_of(source, layout_of(4, ranks, 16), {0, 40}, spread);
    for (const PlanLink& link : plan.links()) used.push_back(link.source_rank);
    return used;
  };
  EXPECT_THAT(sources(1, 0), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(sources(1, 1), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(sources(4, 0), ElementsAre(0, 3, 4, 7));
  EXPECT_THAT(sources(4, UINT32_MAX), ElementsAre(1, 2, 5, 6));
  EXPECT_THAT(sources(8, 0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7)) << "each its own";
}

// Field case A15: pools far above 4 GiB, and one head.
TEST(TransferPlan, OffsetsAreExactAbove4GiB) {
  for (const uint32_t kv_heads : {1u, 8u}) {
    KvLayout layout = layout_of(kv_heads, 1, 256);
    layout.head_dim = 128;
    layout.pages_total = 3'000'000;
    const uint64_t page_bytes = uint64_t{kv_heads} * 256 * 128 * 2;
    EXPECT_EQ(layout.pool_bytes(0), 3'000'000 * page_bytes);
    const TransferPlan plan = plan_of(layout, layout, {3, 259});
    const std::vector<PageId> source{{2'999'998}, {2'999'999}};
    const std::vector<PageId> target{{2'000'001}, {1'999'999}};
    ASSERT_TRUE(plan.check_pages(source, target).ok());
    std::vector<PageCopy> copies;
    for (uint32_t slice = 0; slice < plan.slices_count(); ++slice) {
      plan.for_each_copy(plan.links()[0], slice, {source, target},
                         [&](const PageCopy& copy) { copies.push_back(copy); });
    }
    ASSERT_EQ(copies.size(), 2u * kv_heads);
    const PageCopy& first_of_last_head = copies[kv_heads - 1];
    const uint64_t head = uint64_t{kv_heads - 1} * 256 * 256;
    EXPECT_EQ(first_of_last_head.source_offset, 2'999'998 * page_bytes + head + 3 * 256);
    EXPECT_EQ(first_of_last_head.target_offset, 2'000'001 * page_bytes + head + 3 * 256);
    EXPECT_EQ(first_of_last_head.bytes, 253u * 256);
    EXPECT_EQ(copies.back().source_offset, 2'999'999 * page_bytes + head);
    EXPECT_EQ(copies.back().target_offset, 1'999'999 * page_bytes + head);
    EXPECT_EQ(copies.back().bytes, 3u * 256);
  }
}

// The last page of the longest sequence ends behind the last 32-bit position.
TEST(TransferPlan, PositionsAreExactAtTheEndOf32Bits) {
  const TransferPlan plan =
      plan_of(layout_of(1, 1, 48), layout_of(1, 1, 64), {UINT32_MAX - 10, UINT32_MAX});
  EXPECT_EQ(plan.slices_count(), 1u);
  EXPECT_EQ(plan.slice_tokens(0), plan.tokens());
  EXPECT_EQ(plan.slices_ready(UINT32_MAX - 1), 0u);
  EXPECT_EQ(plan.slices_ready(UINT32_MAX), 1u);
}

TEST(TransferPlan, RefusesWhatAPeerCanSend) {
  const KvLayout good = layout_of(4, 2, 16);
  KvLayout bad = good;
  bad.page_tokens = 0;
  EXPECT_FALSE(TransferPlan::create(good, bad, {}).ok());
  EXPECT_FALSE(TransferPlan::create(bad, good, {}).ok());
  bad = good;
  bad.format = 2;
  EXPECT_FALSE(TransferPlan::create(bad, good, {}).ok());

  const TransferPlan plan = plan_of(good, good, {16, 40});
  const std::vector<PageId> two{{0}, {63}};
  const std::vector<PageId> three{{0}, {1}, {2}};
  const std::vector<PageId> outside{{0}, {64}};
  EXPECT_TRUE(plan.check_pages(two, two).ok());
  EXPECT_THAT(plan.check_pages(three, two).error().what, HasSubstr("3 source pages"));
  EXPECT_THAT(plan.check_pages(two, three).error().what, HasSubstr("3 target pages"));
  EXPECT_THAT(plan.check_pages(two, outside).error().what, HasSubstr("target page 64"));
}

}  // namespace
}  // namespace tandem::kv
