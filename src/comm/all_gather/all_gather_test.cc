// Goal: every rank gets every row, in rank order, call after call, and a barrier is one. Method:
// rows that name their rank and call; ranks run at different speeds; a barrier is observed through
// counters that it must order.
#include "comm/all_gather/all_gather.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <vector>

#include "comm/barrier/barrier.h"
#include "comm/testing/run_ranks.h"

namespace tandem::comm {
namespace {

TEST(AllGather, GivesEveryRowOfEveryCall) {
  for (int ranks : {1, 2, 3, 4, 8, 16}) {
    expect_ranks(ranks, 1 << 16, [](SymmetricHeap& heap) -> Result<void> {
      using Row = std::array<uint64_t, 3>;
      auto gather = TANDEM_TRY(AllGather::create(heap, sizeof(Row)));
      const auto n = static_cast<uint64_t>(heap.ranks_count());
      for (uint64_t call = 1; call <= 100; ++call) {
        const auto self = static_cast<uint64_t>(heap.rank());
        Row row = {call, self, call * self + 1};
        gather.start(std::as_bytes(std::span(row)));
        row.fill(~uint64_t{0});  // the source may be reused at once
        if ((call + self) % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
        const auto rows = TANDEM_TRY(gather.finish());
        for (uint64_t rank = 0; rank < n; ++rank) {
          const Row& seen = reinterpret_cast<const Row*>(rows.data())[rank];
          if (seen != Row{call, rank, call * rank + 1}) {
            return make_error(Code::kInternal, "a wrong row in call " + std::to_string(call));
          }
        }
      }
      EXPECT_EQ(heap.counters().bytes_put, 100 * (n - 1) * sizeof(Row));
      return {};
    });
  }
}

TEST(Barrier, NobodyPassesBeforeAllHaveCome) {
  for (int ranks : {1, 2, 3, 4, 8, 16}) {
    std::atomic<int> arrived{0};
    expect_ranks(ranks, 1 << 16, [&](SymmetricHeap& heap) -> Result<void> {
      auto barrier = TANDEM_TRY(Barrier::create(heap));
      for (int round = 1; round <= 50; ++round) {
        arrived.fetch_add(1, std::memory_order_relaxed);
        TANDEM_TRY(barrier.wait());
        const int seen = arrived.load(std::memory_order_relaxed);
        if (seen < round * ranks) return make_error(Code::kInternal, "passed too early");
        TANDEM_TRY(barrier.wait());
      }
      return {};
    });
  }
}

}  // namespace
}  // namespace tandem::comm
