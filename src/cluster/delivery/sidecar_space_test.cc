// Goal: stretches never overlap, none is lost, and the first gap that is long enough is taken.
// Method: random use against an array of flags. Another seed: --gtest_random_seed=N.
#include "cluster/delivery/sidecar_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace tandem::cluster {
namespace {

std::optional<uint64_t> first_fit(const std::vector<bool>& is_taken, uint64_t records) {
  uint64_t run = 0;
  for (uint64_t i = 0; i < is_taken.size(); ++i) {
    run = is_taken[i] ? 0 : run + 1;
    if (run == records) return i + 1 - records;
  }
  return std::nullopt;
}

TEST(SidecarSpace, IsAnArrayOfFlags) {
  constexpr uint64_t kTotal = 97;
  const int seed = testing::UnitTest::GetInstance()->random_seed();
  std::mt19937_64 random(seed);
  SidecarSpace space(kTotal);
  std::vector<bool> is_taken(kTotal);
  std::vector<std::pair<uint64_t, uint64_t>> stretches;
  int refusals = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (!stretches.empty() && random() % 2 == 0) {
      const size_t which = random() % stretches.size();
      const auto [first, records] = stretches[which];
      stretches.erase(stretches.begin() + static_cast<ptrdiff_t>(which));
      space.give_back(first);
      std::fill_n(is_taken.begin() + static_cast<ptrdiff_t>(first), records, false);
    } else {
      const uint64_t records = 1 + random() % 30;
      const auto got = space.take(records);
      ASSERT_EQ(got, first_fit(is_taken, records)) << "seed " << seed << " step " << step;
      refusals += !got.has_value();
      if (!got) continue;
      std::fill_n(is_taken.begin() + static_cast<ptrdiff_t>(*got), records, true);
      stretches.emplace_back(*got, records);
    }
    ASSERT_EQ(space.records_taken(), static_cast<uint64_t>(std::ranges::count(is_taken, true)));
  }
  EXPECT_GT(refusals, 100);
  for (const auto& [first, records] : stretches) space.give_back(first);
  EXPECT_EQ(space.take(kTotal), 0u) << "all gaps are one again";
  EXPECT_EQ(space.take(1), std::nullopt);
}

TEST(SidecarSpace, OfNothingGivesNothing) {
  EXPECT_EQ(SidecarSpace(0).take(1), std::nullopt);
}

}  // namespace
}  // namespace tandem::cluster
