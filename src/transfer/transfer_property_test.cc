// Goal: under any faults, bytes are exactly right, counts complete exactly when all slices are
// there, nothing is written after a fence, a settled end or a complete count, and all ends once.
// Method: random runs of testing/transfer_exercise.h, each from its own seed, which is printed when
// it fails. Other seeds: --gtest_random_seed=N.
#include <gtest/gtest.h>

#include <random>

#include "transfer/testing/transfer_exercise.h"

namespace tandem::transfer {
namespace {

constexpr uint64_t kRuns = 60;
constexpr int kSteps = 3'000;

TEST(TransferProperty, RandomUseUnderFaultsAgreesWithTheModel) {
  const auto first = static_cast<uint64_t>(GTEST_FLAG_GET(random_seed)) * kRuns;
  TransferExercise::Seen sum;
  for (uint64_t seed = first; seed < first + kRuns; ++seed) {
    SCOPED_TRACE(seed);
    std::fprintf(stderr, "\rseed %lu ", seed);
    std::mt19937_64 random(seed);
    TransferExercise exercise(
        [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); });
    for (int i = 0; i < kSteps; ++i) exercise.step();
    exercise.finish_all();
    const TransferExercise::Seen& seen = exercise.seen();
    sum.completions += seen.completions;
    sum.failures_settled += seen.failures_settled;
    sum.failures_unsettled += seen.failures_unsettled;
    sum.takeovers += seen.takeovers;
    sum.revocations += seen.revocations;
    sum.restarts += seen.restarts;
    sum.immediates_repeated += seen.immediates_repeated;
    sum.writes_repeated += seen.writes_repeated;
  }
  std::fprintf(stderr, "\n");
  // Each of these must happen, or the comparison says nothing about it.
  EXPECT_GT(sum.completions, kRuns * 10);
  EXPECT_GT(sum.failures_settled, kRuns);
  EXPECT_GT(sum.failures_unsettled, kRuns / 10);
  EXPECT_GT(sum.takeovers, kRuns / 10);
  EXPECT_GT(sum.revocations, kRuns);
  EXPECT_GT(sum.restarts, kRuns);
  EXPECT_GT(sum.immediates_repeated, kRuns / 10);
  EXPECT_GT(sum.writes_repeated, kRuns / 10);
}

}  // namespace
}  // namespace tandem::transfer
