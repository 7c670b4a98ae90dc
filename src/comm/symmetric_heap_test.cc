// Goal: what is put is seen after a wait and never before it is signalled, allocations agree, and
// every end of a rank ends the others' waits with its name. Method: ranks are threads; orders of
// events are forced by flags, not by sleeping.
#include "comm/symmetric_heap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "comm/measure_heap.h"
#include "comm/testing/run_ranks.h"

namespace tandem::comm {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

std::unique_ptr<ThreadGroup> make_group(int ranks, size_t heap_bytes = 1 << 16) {
  return std::move(*ThreadGroup::create({.ranks_count = ranks, .heap_bytes = heap_bytes}));
}

TEST(SymmetricHeap, AllocatesTheSameOffsetsAndSaysWhenItIsFull) {
  auto group = make_group(3, 4096);
  for (int rank = 0; rank < 3; ++rank) {
    SymmetricHeap& heap = group->heap(rank);
    EXPECT_EQ(*heap.allocate(1), 0u);
    EXPECT_EQ(*heap.allocate(65), 64u);
    EXPECT_EQ(*heap.allocate(0), 192u);
    EXPECT_EQ(heap.allocate_flags(2)->offset, 192u);
    EXPECT_EQ(heap.bytes_available(), 4096u - 320u);
    const auto full = heap.allocate(4096);
    ASSERT_FALSE(full.ok());
    EXPECT_EQ(full.error().code, Code::kResourceExhausted);
    EXPECT_THAT(full.error().what, HasSubstr("3776 of 4096"));
    EXPECT_FALSE(heap.allocate(SIZE_MAX).ok());
    EXPECT_EQ(*heap.local<uint64_t>(192), 0u);
  }
}

TEST(SymmetricHeap, ASubgroupIsAGroupInTheSameMemory) {
  // Ranks 0 and 1, ranks 2 to 4; ranks 0, 2 and 4, ranks 1 and 3: the same allocations, signals
  // that stay inside.
  const auto member = [](SymmetricHeap& heap, SymmetricHeap::Subgroup ranks) -> Result<void> {
    const size_t before = TANDEM_TRY(heap.allocate(64));
    const auto group = heap.subgroup(ranks);
    const size_t offset = TANDEM_TRY(group->allocate(64));
    EXPECT_EQ(offset, before + 64);
    const Flag flag = TANDEM_TRY(group->allocate_flags(1));
    EXPECT_EQ(group->ranks_count(), ranks.ranks_count);
    EXPECT_EQ(ranks.first_rank + group->rank() * ranks.step, heap.rank());
    const int next = (group->rank() + 1) % group->ranks_count();
    const int value = heap.rank();
    group->put(next, offset, std::as_bytes(std::span(&value, 1)));
    group->signal(next, flag, 1);
    TANDEM_TRY(group->wait(flag, 1, (next + 1) % group->ranks_count()));
    const int from = (group->rank() + group->ranks_count() - 1) % group->ranks_count();
    EXPECT_EQ(*heap.local<int>(offset), ranks.first_rank + from * ranks.step);
    EXPECT_EQ(TANDEM_TRY(heap.allocate(64)), flag.offset + 64);
    return {};
  };
  expect_ranks(5, 4096, [&](SymmetricHeap& heap) -> Result<void> {
    const bool is_low = heap.rank() < 2;
    TANDEM_TRY(member(heap, {is_low ? 0 : 2, is_low ? 2 : 3, 1}));
    const bool is_odd = heap.rank() % 2 == 1;
    return member(heap, {is_odd ? 1 : 0, is_odd ? 2 : 3, 2});
  });
}

TEST(SymmetricHeap, IsMeasuredWithoutMemory) {
  const auto allocate = [](SymmetricHeap& heap) -> Result<void> {
    TANDEM_TRY(heap.allocate(100));
    TANDEM_TRY(heap.subgroup({.ranks_count = 2})->allocate_flags(3));
    return {};
  };
  const size_t bytes = *measure_heap(4, allocate);
  EXPECT_EQ(bytes, 128u + 3 * 64);
}

TEST(SymmetricHeap, RefusesImpossibleGroups) {
  EXPECT_THAT(ThreadGroup::create({.ranks_count = 0, .heap_bytes = 1}).error().what,
              HasSubstr("1 to 1024"));
  EXPECT_FALSE(ThreadGroup::create({.ranks_count = 2, .heap_bytes = 0}).ok());
  EXPECT_FALSE(ThreadGroup::create({.ranks_count = 2, .heap_bytes = SIZE_MAX}).ok());
}

TEST(SymmetricHeap, PassesATokenRoundTheRing) {
  // Each hop reads what the hop before put: 200 rounds through spinning, yielding and sleeping.
  for (int ranks : {1, 2, 3, 4, 8, 16}) {
    expect_ranks(ranks, 4096, [](SymmetricHeap& heap) -> Result<void> {
      const int next = (heap.rank() + 1) % heap.ranks_count();
      const int before = (heap.rank() + heap.ranks_count() - 1) % heap.ranks_count();
      const size_t place = TANDEM_TRY(heap.allocate(8));
      const Flag flag = TANDEM_TRY(heap.allocate_flags(1));
      for (uint64_t round = 1; round <= 200; ++round) {
        uint64_t token = round * 1000;
        if (heap.rank() != 0) {
          TANDEM_TRY(heap.wait(flag, round, before));
          token = *heap.local<uint64_t>(place) + 1;
        }
        heap.put(next, place, std::as_bytes(std::span(&token, 1)));
        heap.signal(next, flag, round);
        if (heap.rank() == 0) {
          TANDEM_TRY(heap.wait(flag, round, before));
          EXPECT_EQ(*heap.local<uint64_t>(place),
                    round * 1000 + static_cast<uint64_t>(heap.ranks_count()) - 1);
        }
      }
      EXPECT_EQ(heap.counters().bytes_put, heap.ranks_count() == 1 ? 0u : 1600u);
      EXPECT_EQ(heap.counters().signals, 200u);
      return {};
    });
  }
}

TEST(SymmetricHeap, EpochsAreWideAndNeverFall) {
  auto group = make_group(1);
  SymmetricHeap& heap = group->heap(0);
  const Flag flag = *heap.allocate_flags(1);
  constexpr uint64_t kLarge = (uint64_t{7} << 32) + 5;
  heap.signal(0, flag, kLarge);
  heap.signal(0, flag, 3);
  EXPECT_TRUE(heap.has_arrived(flag, kLarge));
  EXPECT_FALSE(heap.has_arrived(flag, kLarge + 1));
  EXPECT_TRUE(heap.wait(flag, kLarge, 0).ok());
}

TEST(SymmetricHeap, ADeathEndsEveryWaitWithItsNameInTime) {
  auto group = make_group(4);
  const auto start = Clock::now();
  const auto results = run_ranks(*group, [](SymmetricHeap& heap) -> Result<void> {
    const Flag flag = TANDEM_TRY(heap.allocate_flags(1));
    if (heap.rank() == 2) return make_error(Code::kInternal, "out of luck");
    if (heap.rank() == 3) return heap.wait_idle(flag, 1);
    return heap.wait(flag, 1, heap.rank() == 0 ? 1 : 0);  // nobody waits for the dead one
  });
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  for (int rank : {0, 1, 3}) {
    const auto& result = results[static_cast<size_t>(rank)];
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kUnavailable);
    EXPECT_THAT(result.error().what, HasSubstr("rank 2 of host "));
    EXPECT_THAT(result.error().what, HasSubstr("out of luck"));
  }
}

TEST(SymmetricHeap, ADepartureEndsOnlyWaitsForMore) {
  auto group = make_group(3);
  const auto results = run_ranks(*group, [](SymmetricHeap& heap) -> Result<void> {
    const Flag flags = TANDEM_TRY(heap.allocate_flags(3));
    if (heap.rank() == 0) {
      heap.signal(1, flags, 1);
      return {};  // leaves
    }
    if (heap.rank() == 1) {
      TANDEM_TRY(heap.wait(flags, 1, 0));  // signalled before it left
      const auto more = heap.wait(flags, 2, 0);
      EXPECT_FALSE(more.ok());
      EXPECT_THAT(more.error().what, HasSubstr("rank 0 of host "));
      EXPECT_THAT(more.error().what, HasSubstr("has left"));
      heap.signal(2, SymmetricHeap::flag_at(flags, 1), 1);
      return {};
    }
    return heap.wait(SymmetricHeap::flag_at(flags, 1), 1, 1);  // the departure of 0 is no matter
  });
  for (const auto& result : results) EXPECT_TRUE(result.ok()) << result.error().what;
}

}  // namespace
}  // namespace tandem::comm
