// Goal: every index runs exactly once, whatever the team size, and an idle team sleeps.
// Method: counters per index over many short loops; CPU time of the process while idle.
#include "cpu/thread_team.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <numeric>

namespace tandem::cpu {
namespace {

TEST(ThreadTeam, RunsEveryIndexOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadTeam team(threads);
    for (int64_t count : {0, 1, 2, 7, 1000}) {
      for (int repeat = 0; repeat < 200; ++repeat) {
        std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
        team.parallel_for(count, [&](int64_t i, int worker) {
          ASSERT_LT(worker, team.threads_count());
          hits[static_cast<size_t>(i)].fetch_add(1);
        });
        for (auto& hit : hits) ASSERT_EQ(hit.load(), 1);
      }
    }
  }
}

TEST(ThreadTeam, WakesAfterSleepingAndSleepsWhenIdle) {
  ThreadTeam team(4);
  std::atomic<int> sum{0};
  for (int i = 0; i < 3; ++i) {
    team.parallel_for(100, [&](int64_t, int) { sum.fetch_add(1); });
    const std::clock_t before = std::clock();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const double busy_ms = 1e3 * static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
    EXPECT_LT(busy_ms, 20.0) << "three workers spin for 50 us each, then sleep";
  }
  EXPECT_EQ(sum.load(), 300);
}

}  // namespace
}  // namespace tandem::cpu
