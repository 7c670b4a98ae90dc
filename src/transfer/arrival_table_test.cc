// Goal: a wait ends exactly once, with its own immediates only, whatever else arrives.
// Method: the cases of the contract one by one, then random calls against a plain list of waits.
#include "transfer/arrival_table.h"

#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <random>

namespace tandem::transfer {
namespace {

/// Delivers one immediate and makes the call that it causes.
void arrive(ArrivalTable& table, Arrival arrival) {
  if (auto complete = table.arrived(immediate_of(arrival))) complete();
}

TEST(ArrivalTable, AnImmediateIsSlotAboveEpoch) {
  EXPECT_EQ(immediate_of({.slot = 0x1234, .epoch = 0xabcd}), 0x1234abcdu);
  EXPECT_EQ(arrival_of(0x1234abcdu), (Arrival{.slot = 0x1234, .epoch = 0xabcd}));
}

TEST(ArrivalTable, FiresOnceAtTheCount) {
  ArrivalTable table(4);
  int fired = 0;
  ASSERT_TRUE(table.expect({2, 7}, 3, [&] { ++fired; }).ok());
  for (int expected : {0, 0, 1, 1}) {
    arrive(table, {2, 7});
    EXPECT_EQ(fired, expected);
  }
  EXPECT_EQ(table.counts().counted, 3u);
  EXPECT_EQ(table.counts().late, 1u);
  EXPECT_EQ(table.waiting_count(), 0u);
}

TEST(ArrivalTable, OtherEpochsSatisfyNothing) {
  ArrivalTable table(4);
  int fired = 0;
  ASSERT_TRUE(table.expect({2, 7}, 1, [&] { ++fired; }).ok());
  arrive(table, {2, 6});
  arrive(table, {2, 8});
  arrive(table, {1, 7});
  arrive(table, {9, 7});
  EXPECT_EQ(fired, 0);
  EXPECT_EQ(table.counts().late, 1u);
  EXPECT_EQ(table.counts().early, 1u);
  EXPECT_EQ(table.counts().unknown, 2u);
  // What came early was not kept.
  EXPECT_TRUE(table.cancel({2, 7}));
  ASSERT_TRUE(table.expect({2, 8}, 1, [&] { ++fired; }).ok());
  EXPECT_EQ(table.missing({2, 8}), 1u);
}

TEST(ArrivalTable, EpochsAreComparedAroundTheirWrap) {
  ArrivalTable table(1);
  ASSERT_TRUE(table.expect({0, 0}, 1, [] {}).ok());
  arrive(table, {0, 65535});
  EXPECT_EQ(table.counts().late, 1u);
  arrive(table, {0, 1});
  EXPECT_EQ(table.counts().early, 1u);
}

TEST(ArrivalTable, CancelDropsTheCount) {
  ArrivalTable table(1);
  int fired = 0;
  ASSERT_TRUE(table.expect({0, 1}, 2, [&] { ++fired; }).ok());
  arrive(table, {0, 1});
  EXPECT_FALSE(table.cancel({0, 2}));
  EXPECT_TRUE(table.cancel({0, 1}));
  EXPECT_FALSE(table.cancel({0, 1}));
  arrive(table, {0, 1});
  EXPECT_EQ(table.counts().late, 1u);
  // Even the same epoch starts from nothing.
  ASSERT_TRUE(table.expect({0, 1}, 2, [&] { ++fired; }).ok());
  arrive(table, {0, 1});
  EXPECT_EQ(fired, 0);
}

TEST(ArrivalTable, NothingToWaitForIsCompleteAtOnceButOnlyOnce) {
  ArrivalTable table(2);
  int fired = 0;
  ASSERT_TRUE(table.expect({0, 1}, 0, [&] { ++fired; }).ok());
  ASSERT_TRUE(table.expect({1, 1}, 0, [&] { fired += 100; }).ok());
  EXPECT_TRUE(table.cancel({1, 1}));
  arrive(table, {0, 1});
  EXPECT_EQ(table.counts().late, 1u);
  while (auto complete = table.take_complete()) complete();
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(table.waiting_count(), 0u);
}

TEST(ArrivalTable, AWaitingSlotAndAMissingOneAreErrors) {
  ArrivalTable table(2);
  ASSERT_TRUE(table.expect({1, 1}, 5, [] {}).ok());
  EXPECT_EQ(table.expect({1, 2}, 5, [] {}).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(table.expect({2, 1}, 5, [] {}).error().code, Code::kInvalidArgument);
}

TEST(ArrivalTable, RandomCallsAgreeWithAPlainModel) {
  const auto seed = static_cast<uint32_t>(GTEST_FLAG_GET(random_seed));
  std::cout << "seed " << seed << '\n';
  std::mt19937_64 random(seed);
  constexpr uint16_t kSlots = 5;
  ArrivalTable table(kSlots);
  std::map<uint16_t, std::pair<uint16_t, uint64_t>> waits;  // slot -> epoch, missing
  std::vector<uint16_t> next_epoch(kSlots, 65530);
  uint64_t fired = 0, fires_expected = 0, counted = 0;
  for (int i = 0; i < 100'000; ++i) {
    const auto slot = static_cast<uint16_t>(random() % kSlots);
    const auto epoch = static_cast<uint16_t>(next_epoch[slot] - 1 + random() % 3 - 1);
    const auto wait = waits.find(slot);
    const bool is_waiting = wait != waits.end() && wait->second.first == epoch;
    switch (random() % 8) {
      case 0: {
        const uint64_t count = 1 + random() % 6;
        const Arrival arrival{slot, next_epoch[slot]};
        ASSERT_EQ(table.expect(arrival, count, [&] { ++fired; }).ok(), wait == waits.end());
        if (wait == waits.end()) waits[slot] = {next_epoch[slot]++, count};
        break;
      }
      case 1:
        ASSERT_EQ(table.cancel({slot, epoch}), is_waiting);
        if (is_waiting) waits.erase(slot);
        break;
      default:
        arrive(table, {slot, epoch});
        counted += is_waiting ? 1 : 0;
        if (is_waiting && --wait->second.second == 0) {
          waits.erase(slot);
          ++fires_expected;
        }
    }
    ASSERT_EQ(fired, fires_expected);
    ASSERT_EQ(table.counts().counted, counted);
    ASSERT_EQ(table.waiting_count(), waits.size());
  }
  EXPECT_GT(fired, 1'000u);
}

}  // namespace
}  // namespace tandem::transfer
