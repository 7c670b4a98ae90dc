// Goal: the moves that `bench transfer` compares carry the same bytes in the same number of slices,
// onto the ranks that their names say.
// Method: every copy of every plan, added up per target.
#include "apps/reshard_moves.h"

#include <gtest/gtest.h>

#include <map>

namespace tandem::apps {
namespace {

std::map<uint32_t, uint64_t> bytes_by_target(Reshard onto) {
  std::map<uint32_t, uint64_t> bytes;
  const auto moves = plan_reshard(onto);
  if (!moves.ok()) return bytes;
  for (const ReshardMove& move : moves.value()) {
    for (const kv::PlanLink& link : move.plan.links()) {
      for (uint32_t slice = 0; slice < move.plan.slices_count(); ++slice) {
        move.plan.for_each_copy(
            link, slice, {move.source_pages, move.target_pages}, [&](const kv::PageCopy& copy) {
              EXPECT_EQ(copy.bytes, ReshardShape::kSliceBytes);
              bytes[move.target_first + link.target_rank] += copy.bytes * ReshardShape::kPools;
            });
      }
    }
  }
  return bytes;
}

TEST(ReshardMoves, EveryWayCarriesTheSameBytes) {
  const std::map<uint32_t, uint64_t> quarters{{0, ReshardShape::kMoveBytes / 4},
                                              {1, ReshardShape::kMoveBytes / 4},
                                              {2, ReshardShape::kMoveBytes / 4},
                                              {3, ReshardShape::kMoveBytes / 4}};
  const std::map<uint32_t, uint64_t> all{{0, ReshardShape::kMoveBytes}};
  EXPECT_EQ(bytes_by_target(Reshard::kEqual), quarters);
  EXPECT_EQ(bytes_by_target(Reshard::kOneRank), all);
  EXPECT_EQ(bytes_by_target(Reshard::kDataParallel), quarters);
}

TEST(ReshardMoves, ADataParallelRankHearsFromEverySourceRank) {
  const auto moves = plan_reshard(Reshard::kDataParallel);
  ASSERT_TRUE(moves.ok());
  ASSERT_EQ(moves.value().size(), ReshardShape::kRanks);
  for (const ReshardMove& move : moves.value()) {
    EXPECT_EQ(move.plan.links().size(), ReshardShape::kRanks);
    EXPECT_TRUE(move.plan.check_pages(move.source_pages, move.target_pages).ok());
  }
}

}  // namespace
}  // namespace tandem::apps
