// Goal: a placement starts as the balanced ranges, says truly who holds what, and lets every rank
// know, without a word, which holder serves it: alone if it holds the expert, evenly among holders
// otherwise, and nobody once no holder is left. Method: all small shapes against counts made from
// experts() alone.
#include "comm/expert_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace tandem::comm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ExpertPlacement initial(int32_t experts, int32_t redundant, int ranks) {
  return ExpertPlacement::initial(
             {.experts_count = experts, .redundant_count = redundant, .ranks_count = ranks})
      .value();
}

TEST(ExpertPlacement, WithoutRedundantExpertsItIsTheRanges) {
  for (int ranks = 1; ranks <= 12; ++ranks) {
    for (int32_t experts : {12, 16, 30, 128}) {
      const auto ranges = ExpertRanges::balanced(experts, ranks).value();
      const ExpertPlacement placement = initial(experts, 0, ranks);
      for (int32_t expert = 0; expert < experts; ++expert) {
        const int owner = ranges.owner(expert);
        EXPECT_EQ(placement.slot_of(owner, expert), expert - ranges.first(owner));
        EXPECT_EQ(placement.copies_count(expert), 1);
        for (int source = 0; source < ranks; ++source) {
          EXPECT_EQ(placement.server(expert, source), owner);
        }
      }
    }
  }
}

TEST(ExpertPlacement, RedundantSlotsHoldTheFirstExpertsAgain) {
  const ExpertPlacement placement = initial(6, 3, 4);
  EXPECT_THAT(placement.experts_of(0), ElementsAre(0, 1, 2));
  EXPECT_THAT(placement.experts_of(1), ElementsAre(3, 4));
  EXPECT_THAT(placement.experts_of(2), ElementsAre(5, 0));
  EXPECT_THAT(placement.experts_of(3), ElementsAre(1, 2));
  EXPECT_EQ(placement.copies_count(0), 2);
  EXPECT_EQ(placement.copies_count(5), 1);
}

TEST(ExpertPlacement, HoldersServeThemselvesAndShareTheOthersEvenly) {
  for (int ranks = 2; ranks <= 9; ++ranks) {
    for (int32_t redundant = ranks > 8 ? 1 : 0; redundant <= 8 * (ranks - 1); ++redundant) {
      const ExpertPlacement placement = initial(8, redundant, ranks);
      for (int32_t expert = 0; expert < 8; ++expert) {
        std::map<int, int> served;
        for (int source = 0; source < ranks; ++source) {
          const int server = placement.server(expert, source);
          EXPECT_TRUE(placement.holds(server, expert));
          if (placement.holds(source, expert)) {
            EXPECT_EQ(server, source);
          }
          ++served[server];
        }
        const int copies = placement.copies_count(expert);
        ASSERT_EQ(served.size(), static_cast<size_t>(copies));
        for (const auto& [server, count] : served) {
          EXPECT_GE(count, ranks / copies);
          EXPECT_LE(count, (ranks + copies - 1) / copies);
        }
      }
    }
  }
}

TEST(ExpertPlacement, WhatIsLeftOverOfARoundIsSharedAmongExperts) {
  // Ranks 0 and 1 hold experts 1 and 2, rank 2 holds neither: each serves it with one of them.
  const ExpertPlacement placement =
      initial(4, 3, 3).holding({0, 1, 2, 1, 2, 3, ExpertPlacement::kNone});
  EXPECT_NE(placement.server(1, 2), placement.server(2, 2));
}

TEST(ExpertPlacement, AnExpertWithoutHolderIsServedByNobody) {
  const ExpertPlacement placement = initial(6, 3, 4);
  EXPECT_FALSE(placement.lacks_experts());
  // What its ranks 0 and 2 hold; those that held expert 3, and a copy of 1, are gone.
  const std::vector<std::vector<int32_t>> held = {{0, 1, 2}, {5, 0}};
  const ExpertPlacement left = ExpertPlacement::of(6, held).value();
  EXPECT_TRUE(left.lacks_experts());
  EXPECT_EQ(left.slots_count(0), 3);
  EXPECT_EQ(left.slots_count(1), 2);
  EXPECT_EQ(left.copies_count(3), 0);
  for (const int source : {0, 1}) EXPECT_EQ(left.server(3, source), ExpertPlacement::kNone);
  EXPECT_EQ(left.server(1, 1), 0);
  EXPECT_EQ(left.slot_of(1, 0), 1);
  EXPECT_NE(left, placement);
}

TEST(ExpertPlacement, WhatRanksSayTheyHoldMustBePossible) {
  using Held = std::vector<std::vector<int32_t>>;
  EXPECT_TRUE(
      ExpertPlacement::of(3, Held{{0, ExpertPlacement::kNone, ExpertPlacement::kNone}}).ok());
  for (const Held& held : {Held{{0, 1}, {3, 0}}, Held{{0, 1}, {-2, 0}}, Held{{0, 1}, {2, 2}}}) {
    const auto placement = ExpertPlacement::of(3, held);
    ASSERT_FALSE(placement.ok());
    EXPECT_EQ(placement.error().code, Code::kDataLoss);
    EXPECT_THAT(placement.error().what, HasSubstr("rank 1 says"));
  }
}

TEST(ExpertPlacement, MoreRanksThanExpertsNeedASlotForEachRank) {
  const auto make = [](int32_t redundant) {
    return ExpertPlacement::initial(
        {.experts_count = 4, .redundant_count = redundant, .ranks_count = 6});
  };
  EXPECT_THAT(make(0).error().what, HasSubstr("at most 4 expert-parallel ranks"));
  EXPECT_THAT(make(1).error().what, HasSubstr("at least --num-redundant-experts 2"));
  ASSERT_TRUE(make(2).ok());
  for (int rank = 0; rank < 6; ++rank) EXPECT_EQ(make(2)->slots_count(rank), 1);
  ASSERT_TRUE(make(20).ok()) << "every expert on every rank";
  EXPECT_THAT(make(21).error().what, HasSubstr("at most --num-redundant-experts 20"));
}

}  // namespace
}  // namespace tandem::comm
