// Goal: every rank gets every message of rank 0 whole and in order, however far apart they run,
// and a receiver's death or rank 0's ends the wait. Method: messages of many lengths, their bytes
// made from their number; slow receivers; ranks that give up.
#include "comm/broadcast/broadcast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "comm/barrier/barrier.h"
#include "comm/testing/run_ranks.h"

namespace tandem::comm {
namespace {

std::vector<std::byte> message(uint64_t number) {
  std::vector<std::byte> bytes(number * 37 % 200);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(number * 7 + i);
  return bytes;
}

TEST(Broadcast, EveryMessageArrivesWholeAndInOrder) {
  constexpr uint64_t kMessages = 300;
  expect_ranks(4, 1 << 16, [&](SymmetricHeap& heap) -> Result<void> {
    auto broadcast = TANDEM_TRY(Broadcast::create(heap, 200));
    auto all_done = TANDEM_TRY(Barrier::create(heap));
    for (uint64_t number = 0; number < kMessages; ++number) {
      const std::vector<std::byte> expected = message(number);
      if (heap.rank() == 0) {
        TANDEM_TRY(broadcast.send(expected));
        continue;
      }
      const auto got = TANDEM_TRY(broadcast.receive());
      if (number % 50 == static_cast<uint64_t>(heap.rank())) {  // the sender is far ahead
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      EXPECT_EQ(std::vector(got.begin(), got.end()), expected);
    }
    // Whoever waits for a message takes any rank's leaving for its end.
    return all_done.wait();
  });
}

TEST(Broadcast, ADeathEndsBothSides) {
  auto group = ThreadGroup::create({.ranks_count = 3, .heap_bytes = 1 << 16});
  const auto results = run_ranks(**group, [](SymmetricHeap& heap) -> Result<void> {
    auto broadcast = TANDEM_TRY(Broadcast::create(heap, 200));
    if (heap.rank() == 1) return make_error(Code::kInternal, "gives up");
    while (true) {
      if (heap.rank() == 0) {
        TANDEM_TRY(broadcast.send({}));
      } else {
        TANDEM_TRY(broadcast.receive());
      }
    }
  });
  for (const auto& result : {results[0], results[2]}) {
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.error().what, testing::HasSubstr("rank 1"));
  }
}

}  // namespace
}  // namespace tandem::comm
