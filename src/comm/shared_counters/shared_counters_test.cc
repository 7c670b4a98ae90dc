// Goal: rank 0 sees what every rank has counted, at any moment and from another thread, never more
// than was counted and never less than before; nobody puts a byte for it. Method: ranks count at
// their own pace while a thread of rank 0 reads without pause; in the end all is there.
#include "comm/shared_counters/shared_counters.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <optional>
#include <thread>

#include "comm/barrier/barrier.h"
#include "comm/testing/run_ranks.h"

namespace tandem::comm {
namespace {

TEST(SharedCounters, RankZeroSeesThemGrow) {
  constexpr int kRanks = 3;
  constexpr uint64_t kSteps = 2000;
  const auto counted = [](int rank, uint64_t step) {
    return std::array<uint64_t, 2>{step, step / 3 * static_cast<uint64_t>(rank + 1)};
  };
  expect_ranks(kRanks, 1 << 16, [&](SymmetricHeap& heap) -> Result<void> {
    auto counters = TANDEM_TRY(SharedCounters::create(heap, 2));
    auto barrier = TANDEM_TRY(Barrier::create(heap));
    std::atomic<bool> is_done{false};
    std::optional<std::jthread> reader;
    if (heap.rank() == 0) {
      reader.emplace([&] {
        std::array<uint64_t, 2 * kRanks> before{};
        while (!is_done.load()) {
          for (int i = 0; i < 2 * kRanks; ++i) {
            const uint64_t now = counters.read(i / 2, i % 2);
            EXPECT_GE(now, before[static_cast<size_t>(i)]);
            EXPECT_LE(now, counted(i / 2, kSteps)[static_cast<size_t>(i % 2)]);
            before[static_cast<size_t>(i)] = now;
          }
        }
      });
    }
    for (uint64_t step = 1; step <= kSteps; ++step) counters.publish(counted(heap.rank(), step));
    TANDEM_TRY(barrier.wait());
    EXPECT_EQ(heap.counters().bytes_put, 0u);
    if (heap.rank() != 0) return {};
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(counters.read(rank, i), counted(rank, kSteps)[static_cast<size_t>(i)]);
      }
    }
    is_done.store(true);
    return {};
  });
}

}  // namespace
}  // namespace tandem::comm
