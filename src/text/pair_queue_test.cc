// Goal: pairs leave in the order of (rank, position), whatever the length of the piece and whatever
// comes while others leave.
// Method: random pushes and pops against a sorted set, for a short and for a long piece; the next
// rank may be below, at or above that of the pair that left last.
#include "text/pair_queue.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>

namespace tandem::text {
namespace {

void expect_order(uint32_t symbols_count, uint32_t ranks_count) {
  SCOPED_TRACE(symbols_count);
  std::mt19937 random(symbols_count + ranks_count);
  PairQueue queue;
  for (int round = 0; round < 50; ++round) {  // one queue serves many pieces
    queue.reset(symbols_count);
    std::multiset<std::pair<uint32_t, uint32_t>> expected;
    const auto push = [&] {
      const PairQueue::Pair pair{static_cast<uint32_t>(random()) % ranks_count,
                                 static_cast<uint32_t>(random()) % 1000};
      queue.push(pair);
      expected.emplace(pair.rank, pair.left);
    };
    for (int i = 0; i < 200; ++i) push();
    const bool is_left_half_full = round % 7 == 3;
    while (!expected.empty() && !(is_left_half_full && expected.size() < 100)) {
      const auto popped = queue.pop();
      ASSERT_TRUE(popped);
      ASSERT_EQ(std::pair(popped->rank, popped->left), *expected.begin());
      expected.erase(expected.begin());
      if (random() % 3 == 0) push();
    }
    if (expected.empty()) {
      ASSERT_FALSE(queue.pop());
    }
  }
}

TEST(PairQueue, KeepsTheOrderOfAShortPiece) {
  expect_order(200, 10);
  expect_order(200, 1000);
}

TEST(PairQueue, KeepsTheOrderOfALongPiece) {
  expect_order(1u << 30, 10);
  expect_order(1u << 30, 1000);
}

TEST(PairQueue, KnowsTheHighestRank) {
  for (const uint32_t symbols_count : {10u, 1u << 30}) {
    PairQueue queue;
    queue.reset(symbols_count);
    queue.push({UINT32_MAX, 4});
    queue.push({UINT32_MAX, 3});
    EXPECT_EQ(queue.pop(), (PairQueue::Pair{UINT32_MAX, 3}));
    queue.push({UINT32_MAX, 1});
    EXPECT_EQ(queue.pop(), (PairQueue::Pair{UINT32_MAX, 1}));
    EXPECT_EQ(queue.pop(), (PairQueue::Pair{UINT32_MAX, 4}));
    EXPECT_FALSE(queue.pop());
  }
}

}  // namespace
}  // namespace tandem::text
