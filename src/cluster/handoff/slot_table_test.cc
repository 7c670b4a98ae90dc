// Goal: no immediate is given out twice while a write that carries it may still come. Method: slots
// taken in turn; the wrap of the low half of an epoch with something held, and without rest.
#include "cluster/handoff/slot_table.h"

#include <gtest/gtest.h>

namespace tandem::cluster::handoff {
namespace {

TEST(SlotTable, GivesEverySlotOnceAndTheOldestFirst) {
  SlotTable table({.slots_count = 2});
  const Key first = table.take(0).value();
  const Key second = table.take(0).value();
  EXPECT_NE(first.slot, second.slot);
  EXPECT_FALSE(table.take(0));
  table.give_back(second, 1);
  table.give_back(first, 2);
  EXPECT_EQ(table.available(), 2u);
  EXPECT_EQ(table.take(3), (Key{second.slot, second.epoch + 1}));
  EXPECT_EQ(table.take(3), (Key{first.slot, first.epoch + 1}));
}

TEST(SlotTable, ASlotIsFreeBeforeItsPagesAre) {
  SlotTable table({.slots_count = 1});
  const Key held = table.take(0).value();
  table.give_back(held, 0);
  const Key next = table.take(0).value();  // not settled, and taken again
  EXPECT_EQ(next.epoch, held.epoch + 1);
  EXPECT_NE(immediate_of(next), immediate_of(held));
}

TEST(SlotTable, WrapsOnlyRestedAndWithNothingHeld) {
  SlotTable table({.slots_count = 1, .rest_us = 100, .epoch_first = 0xfffe});
  const Key held = table.take(0).value();
  table.give_back(held, 0);
  const Key last = table.take(0).value();
  EXPECT_EQ(immediate_of(last).value, 0xffffu);
  table.give_back(last, 10);
  table.settle(last);
  EXPECT_FALSE(table.take(1000)) << "an earlier epoch is held";
  table.settle(held);
  EXPECT_FALSE(table.take(109)) << "it has not rested";
  const Key wrapped = table.take(110).value();
  EXPECT_EQ(wrapped.epoch, 0x10000u);  // the long epoch goes on
  EXPECT_EQ(immediate_of(wrapped).value, 0u);
}

TEST(SlotTable, OneThatRestsHoldsUpNoOther) {
  SlotTable table({.slots_count = 2, .rest_us = 100, .epoch_first = 0xffff});
  const Key first = table.take(0).value();
  table.give_back(first, 0);
  table.settle(first);
  EXPECT_EQ(table.take(1).value().slot, 1);
  EXPECT_FALSE(table.take(1));
  EXPECT_EQ(table.take(100).value(), (Key{first.slot, 0x10000}));
}

}  // namespace
}  // namespace tandem::cluster::handoff
