// Goal: plans balance ranks within the bound of plan_experts.h, move little, and are the same
// wherever they are computed. Method: thousands of random loads (even, skewed, with ties, with
// zeros) on random numbers of experts, ranks and redundant slots, uneven ones and gone ranks
// included; the bound is recomputed here from loads and copies, and the best that a small layer can
// have is found by trying everything.
#include "comm/plan_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace tandem::comm {
namespace {

using testing::ElementsAre;

struct Draw {
  ExpertPlacement placement;
  std::vector<uint64_t> loads;
};

std::vector<uint64_t> random_loads(std::mt19937_64& random, size_t experts) {
  std::vector<uint64_t> loads(experts);
  const uint64_t kind = random() % 4;
  for (uint64_t& load : loads) {
    const double x = static_cast<double>(random() % 1000) / 1000.0;
    if (kind == 0) load = random() % 1000;                                       // even
    if (kind == 1) load = static_cast<uint64_t>(1e6 * std::pow(x, 12.0));        // few are heavy
    if (kind == 2) load = random() % 3;                                          // ties and zeros
    if (kind == 3) load = 1000000 / (1 + static_cast<uint64_t>(random() % 99));  // a long tail
  }
  return loads;
}

Draw draw(std::mt19937_64& random) {
  const auto ranks = static_cast<int>(2 + random() % 15);
  const auto experts = static_cast<int32_t>(1 + random() % 64);
  const int32_t least = std::max(0, ranks - experts);
  const int32_t most = experts * (ranks - 1);
  const int32_t room = std::min(most - least, 2 * ranks);
  const auto redundant = least + static_cast<int32_t>(random() % (static_cast<uint64_t>(room) + 1));
  return {ExpertPlacement::initial(
              {.experts_count = experts, .redundant_count = redundant, .ranks_count = ranks})
              .value(),
          random_loads(random, static_cast<size_t>(experts))};
}

double mean_of(const ExpertPlacement& placement, const std::vector<uint64_t>& loads) {
  double sum = 0;
  for (int32_t e = 0; e < placement.experts_count(); ++e) {
    if (placement.copies_count(e) > 0) sum += static_cast<double>(loads[static_cast<size_t>(e)]);
  }
  return sum / placement.ranks_count();
}

double heaviest_share(const ExpertPlacement& placement, const std::vector<uint64_t>& loads) {
  double heaviest = 0;
  for (int32_t e = 0; e < placement.experts_count(); ++e) {
    const int copies = placement.copies_count(e);
    if (copies == 0) continue;
    heaviest = std::max(heaviest, static_cast<double>(loads[static_cast<size_t>(e)]) / copies);
  }
  return heaviest;
}

double fullest(const ExpertPlacement& placement, const std::vector<uint64_t>& loads) {
  return std::ranges::max(rank_loads(placement, loads));
}

/// Beyond what the constructor of a placement checks: no expert twice on a rank.
void expect_promises(const Draw& d, const ExpertPlacement& plan) {
  const bool has_loads = std::ranges::any_of(d.loads, [](uint64_t load) { return load > 0; });
  if (!has_loads) return;
  const double mean = mean_of(plan, d.loads);
  const double bound = mean + std::max(heaviest_share(plan, d.loads), mean / 32);
  EXPECT_LE(fullest(plan, d.loads), bound * (1 + 1e-9));
  EXPECT_EQ(std::ranges::count(plan.experts(), ExpertPlacement::kNone),
            std::ranges::count(d.placement.experts(), ExpertPlacement::kNone))
      << "every slot that can be used is";
  EXPECT_TRUE(plan_experts(plan, d.loads) == plan) << "a plan is where planning ends";
  for (int rank = 0; rank < plan.ranks_count(); ++rank) {
    for (int32_t expert : d.placement.experts_of(rank)) {
      if (!plan.holds(rank, expert)) continue;
      EXPECT_EQ(plan.slot_of(rank, expert), d.placement.slot_of(rank, expert));
    }
  }
}

TEST(PlanExperts, KeepTheirBoundAndTheirSlots) {
  std::mt19937_64 random(1);
  double worst = 0;
  for (int i = 0; i < 3000 && !HasFailure(); ++i) {
    SCOPED_TRACE("draw " + std::to_string(i));
    Draw d = draw(random);
    // From the starting placement, then from one plan to the next as loads change.
    for (int turn = 0; turn < 3; ++turn) {
      const ExpertPlacement plan = plan_experts(d.placement, d.loads);
      expect_promises(d, plan);
      const double best = std::max(mean_of(plan, d.loads), heaviest_share(plan, d.loads));
      if (best > 0) worst = std::max(worst, fullest(plan, d.loads) / best);
      d.placement = plan;
      d.loads = random_loads(random, d.loads.size());
    }
  }
  std::printf("fullest rank / lower bound of the best: %.3f at worst\n", worst);
  EXPECT_LE(worst, 2.0);
}

TEST(PlanExperts, NoOtherNumberOfCopiesHasALighterHeaviestShare) {
  // All ways to give 3 redundant slots to 5 experts on 4 ranks.
  std::mt19937_64 random(2);
  const auto start =
      ExpertPlacement::initial({.experts_count = 5, .redundant_count = 3, .ranks_count = 4})
          .value();
  for (int i = 0; i < 200; ++i) {
    const std::vector<uint64_t> loads = random_loads(random, 5);
    double best = std::numeric_limits<double>::infinity();
    for (int code = 0; code < 125; ++code) {
      std::array<int, 5> copies = {1, 1, 1, 1, 1};
      for (int digits = code, k = 0; k < 3; ++k, digits /= 5) {
        ++copies[static_cast<size_t>(digits % 5)];
      }
      double heaviest = 0;
      for (size_t e = 0; e < 5; ++e) {
        heaviest = std::max(heaviest, static_cast<double>(loads[e]) / copies[e]);
      }
      best = std::min(best, heaviest);
    }
    const ExpertPlacement plan = plan_experts(start, loads);
    if (std::ranges::all_of(loads, [](uint64_t load) { return load == 0; })) continue;
    EXPECT_DOUBLE_EQ(heaviest_share(plan, loads), best);
  }
}

TEST(PlanExperts, TheHeaviestExpertIsCopiedAndSpread) {
  const auto start =
      ExpertPlacement::initial({.experts_count = 4, .redundant_count = 4, .ranks_count = 4})
          .value();
  const ExpertPlacement plan = plan_experts(start, std::vector<uint64_t>{10, 10, 10, 500});
  EXPECT_EQ(plan.copies_count(3), 4);
  for (int32_t other : {0, 1, 2}) EXPECT_LE(plan.copies_count(other), 2);
  EXPECT_GT(balance_of(rank_loads(plan, std::vector<uint64_t>{10, 10, 10, 500})), 0.95);
}

TEST(PlanExperts, WhatIsBalancedStays) {
  const auto start =
      ExpertPlacement::initial({.experts_count = 16, .redundant_count = 0, .ranks_count = 4})
          .value();
  EXPECT_TRUE(plan_experts(start, std::vector<uint64_t>(16, 7)) == start);
  EXPECT_TRUE(plan_experts(start, std::vector<uint64_t>(16, 0)) == start);
  // One pair of experts is out of balance: two slots change, no more.
  std::vector<uint64_t> loads(16, 100);
  loads[0] = 180;
  loads[4] = 20;
  EXPECT_EQ(moved_slots(start, plan_experts(start, loads)), 2);
}

/// What these ranks hold, counted anew from 0.
ExpertPlacement of_ranks(const ExpertPlacement& placement, const std::vector<int>& ranks) {
  std::vector<std::vector<int32_t>> held;
  for (const int rank : ranks) {
    const auto own = placement.experts_of(rank);
    held.emplace_back(own.begin(), own.end());
  }
  return ExpertPlacement::of(placement.experts_count(), held).value();
}

TEST(PlanExperts, OfRanksThatAreLeftHoldLostExpertsAgain) {
  const auto start =
      ExpertPlacement::initial({.experts_count = 6, .redundant_count = 4, .ranks_count = 5})
          .value();
  const ExpertPlacement left = of_ranks(start, {0, 2, 3});
  EXPECT_EQ(left.copies_count(2), 0);
  EXPECT_EQ(left.copies_count(3), 0);
  const std::vector<uint64_t> loads = {5, 4, 3, 2, 1, 9};
  const ExpertPlacement plan = plan_experts(left, loads);
  for (int32_t expert = 0; expert < 6; ++expert) EXPECT_EQ(plan.copies_count(expert), 1);
  // Two ranks have four slots only: the lightest experts are lost.
  const ExpertPlacement two = plan_experts(of_ranks(plan, {1, 2}), loads);
  EXPECT_EQ(two.copies_count(5), 1);
  int lost = 0;
  for (int32_t expert = 0; expert < 6; ++expert) lost += two.copies_count(expert) == 0 ? 1 : 0;
  EXPECT_EQ(lost, 2);
}

}  // namespace
}  // namespace tandem::comm
