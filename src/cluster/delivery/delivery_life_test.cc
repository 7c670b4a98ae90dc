// Goal: what was submitted is accounted for however it ends; after a fence nothing changes; full
// queues, lost paths and what a peer says wrong become errors, and nothing that must be done is
// lost. Method: real transfer engines in virtual time over a faulty loopback.
#include <gtest/gtest.h>

#include "cluster/delivery/testing/virtual_world.h"

namespace tandem::cluster {
namespace {

using namespace std::chrono_literals;
using handoff::LinkedKey;
using testing::DeliveryWorld;
using testing::expect_delivery;
using testing::kFirst;
using testing::kLink;
using testing::layout_of;
using testing::Virtual;
using Handoff = DeliveryWorld::Handoff;

TEST(Delivery, WhatIsDroppedIsNotToldEvenWhenItHasArrived) {
  Virtual all(layout_of({1, 16}), layout_of({1, 16}), 3);
  DeliveryWorld& world = all.world;
  const Handoff& made = world.begin(kFirst, {0, 16});
  const auto immediate = handoff::immediate_of(kFirst.key);
  // A count of 0 is complete at once: both answers are on their way together.
  bool is_armed = false;
  world.receiver->arm(immediate, 0, 0, [&](const Result<void>&) {
    is_armed = true;
    world.receiver->drop(immediate, 0);
  });
  all.executor.run_for(10ms);
  EXPECT_TRUE(is_armed);
  EXPECT_TRUE(made.arrived.empty());
}

TEST(Delivery, AHandoffThatIsStoppedWhileItWaitsForRoomIsOutOfTheWay) {
  Virtual all(layout_of({1, 16}), layout_of({1, 32}), 3, {.engine = {.slices_max = 300}});
  DeliveryWorld& world = all.world;
  Handoff& large = world.begin(kFirst, {0, 600});
  Handoff& behind = world.begin({kLink, {4, 1}}, {0, 600});
  world.submit_all(large);
  world.submit_all(behind);
  all.executor.run_for(1us);
  world.sender->stop(behind.id);
  ASSERT_TRUE(all.run_until([&] { return behind.is_over(); }));
  world.sender->end(behind.id);
  EXPECT_FALSE(large.is_over());
  ASSERT_TRUE(all.run_until([&] { return large.is_over(); }));
  EXPECT_EQ(large.failed + behind.failed, 0u);
}

TEST(Delivery, StoppedInTheMiddleAllIsAccountedForAndAfterAFenceNothingLands) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    Virtual all(layout_of({2, 16}), layout_of({4, 32}), seed, {.engine = {.slices_max = 300}});
    DeliveryWorld& world = all.world;
    transfer::LoopbackFaults faults = Virtual::kCalm;
    faults.delay_max = 20ms;
    all.fabric.set_faults(faults);
    Handoff& made = world.begin(kFirst, {3, 500});
    world.arm(made);
    world.submit_up_to(made, 4 + world.number(497));
    all.executor.run_for(1us * world.number(30'000));
    const bool stops = seed % 2 == 0;
    if (stops) {
      world.sender->stop(kFirst);
      EXPECT_EQ(world.sender->submit(kFirst, {0, 0, 3, 500}).writes, 0u);
    }
    world.drop(made);
    world.receiver->fence(kLink);
    ASSERT_TRUE(all.run_until([&] { return world.fenced.contains(kLink.value); }));
    const auto fenced = world.target_bytes();
    all.executor.run_for(1s);
    EXPECT_EQ(world.target_bytes(), fenced);
    EXPECT_TRUE(made.arrived.empty());
    // What was not all submitted ends when it is stopped, at the latest.
    if (!stops) world.sender->stop(kFirst);
    ASSERT_TRUE(all.run_until([&] { return made.is_over(); }));
    world.sender->end(kFirst);
    world.sender->close_link(kLink);
    world.connect({78});
    expect_delivery(all, {{78}, {3, 2}}, {0, 100});
  }
}

TEST(Delivery, AStoppedHandoffIsDeliveredAsFarAsItIsSubmitted) {
  Virtual all(layout_of({2, 16}), layout_of({1, 16}), 4);
  DeliveryWorld& world = all.world;
  Handoff& made = world.begin(kFirst, {0, 300});
  world.submit_up_to(made, 200);
  EXPECT_GT(made.submitted, 0u);
  world.sender->stop(kFirst);
  ASSERT_TRUE(all.run_until([&] { return made.is_over(); }));
  EXPECT_EQ(made.failed, 0u) << made.error->what;
  world.sender->end(kFirst);
}

TEST(Delivery, ALostPathBreaksTheLinkOnce) {
  Virtual all(layout_of({1, 16}), layout_of({1, 16}), 4);
  DeliveryWorld& world = all.world;
  Handoff& one = world.begin(kFirst, {0, 100});
  Handoff& two = world.begin({kLink, {4, 1}}, {0, 100});
  transfer::LoopbackFaults faults = Virtual::kCalm;
  faults.unknown = 1;
  all.fabric.set_faults(faults);
  world.submit_all(one);
  world.submit_all(two);
  ASSERT_TRUE(all.run_until([&] { return one.is_over() && two.is_over(); }));
  EXPECT_EQ(one.failed, one.submitted);
  EXPECT_EQ(world.broken.count(kLink.value), 1u);
  EXPECT_FALSE(world.sender->begin({{kLink, {5, 1}}, one.plan, one.target_pages, 0}).ok());
}

TEST(Delivery, OneOfTwoRailsMayBeLost) {
  Virtual all(layout_of({1, 16}), layout_of({2, 16}), 6, {.rails = 2});
  DeliveryWorld& world = all.world;
  const auto before = world.target_bytes();
  Handoff& made = world.begin(kFirst, {0, 500});
  world.arm(made);
  world.submit_all(made);
  all.executor.run_for(300us);
  all.fabric.fail_rail(*all.rails.find("source0")->second);
  ASSERT_TRUE(all.run_until([&] { return world.has_arrived(made) && made.is_over(); }));
  EXPECT_EQ(made.failed, 0u) << "each target rank has one writer, so what is missing is known";
  EXPECT_EQ(world.target_bytes(), world.expected_bytes(made, before));
  world.verify(made);
  EXPECT_TRUE(made.is_proved(2));
}

TEST(Delivery, FullQueuesAreErrorsAndLoseNothingThatMustBeDone) {
  Virtual all(layout_of({1, 16}), layout_of({1, 16}), 4, {.driver = {.commands_max = 1}});
  DeliveryWorld& world = all.world;
  // Only the first finds room, and all can be dropped and armed anew.
  for (uint16_t epoch = 1; epoch <= 3; ++epoch) {
    int armed = 0, refused = 0;
    for (uint16_t slot = 0; slot < 5; ++slot) {
      const auto immediate = handoff::immediate_of({slot, epoch});
      world.receiver->arm(immediate, 0, 1, [&](const Result<void>& result) {
        ++(result.ok() ? armed : refused);
        EXPECT_TRUE(result.ok() || result.error().code == Code::kResourceExhausted);
      });
    }
    ASSERT_TRUE(all.run_until([&] { return armed + refused == 5; }));
    EXPECT_EQ(armed, 1);
    for (uint16_t slot = 0; slot < 5; ++slot) {
      world.receiver->drop(handoff::immediate_of({slot, epoch}), 0);
    }
    world.receiver->drop(handoff::immediate_of({9, 9}), 0);
    all.executor.run_for(10ms);
  }
  Handoff& made = world.begin(kFirst, {0, 100});
  made.submitted = world.sender->submit(kFirst, {0, 0, 0, 50}).writes;
  EXPECT_GT(made.submitted, 0u);
  const auto refused = world.sender->submit(kFirst, {0, 0, 50, 100});
  EXPECT_EQ(refused.writes, 0u);
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->code, Code::kResourceExhausted);
  world.sender->stop(kFirst);
  ASSERT_TRUE(all.run_until([&] { return made.is_over(); }));
  world.sender->end(kFirst);
  world.sender->close_link(kLink);
  world.receiver->fence(kLink);
  ASSERT_TRUE(all.run_until([&] { return world.fenced.contains(kLink.value); }));
}

TEST(Delivery, RoomForRecordsIsWaitedForInTurn) {
  // Three layers of K and V, 7 slices: 42 records a hand-off on each rank.
  Virtual all(layout_of({2, 16}), layout_of({2, 16}), 4, {.sidecar_records = 142});
  DeliveryWorld& world = all.world;
  std::vector<Handoff*> made;
  for (uint16_t slot = 0; slot < 6; ++slot) {
    made.push_back(&world.begin({kLink, {slot, 1}}, {0, 100}));
    world.arm(*made.back());
    world.submit_all(*made.back());
  }
  all.executor.run_for(1s);
  for (const Handoff* each : made) EXPECT_EQ(each->is_over(), each->id.key.slot < 3);
  world.sender->stop(made[3]->id);
  all.executor.run_for(1s);
  EXPECT_TRUE(made[3]->is_over());
  EXPECT_TRUE(made[3]->arrived.empty());
  EXPECT_FALSE(made[4]->is_over());
  for (const size_t slot : {0, 3}) world.sender->end(made[slot]->id);
  ASSERT_TRUE(all.run_until([&] { return made[4]->is_over(); }));
  EXPECT_FALSE(made[5]->is_over());
  world.sender->end(made[1]->id);
  ASSERT_TRUE(all.run_until([&] { return made[5]->is_over() && world.has_arrived(*made[5]); }));
  for (const Handoff* each : made) EXPECT_EQ(each->failed, 0u);
}

TEST(Delivery, AWriteThatWaitedForRoomFailsWithItsLink) {
  Virtual all(layout_of({1, 16}), layout_of({1, 16}), 4, {.sidecar_records = 142});
  DeliveryWorld& world = all.world;
  std::vector<Handoff*> made;
  for (uint16_t slot = 0; slot < 4; ++slot) {
    made.push_back(&world.begin({kLink, {slot, 1}}, {0, 100}));
  }
  transfer::LoopbackFaults faults = Virtual::kCalm;
  faults.unknown = 1;
  all.fabric.set_faults(faults);
  for (Handoff* each : made) world.submit_all(*each);
  ASSERT_TRUE(all.run_until([&] { return made[0]->is_over(); }));
  EXPECT_FALSE(made[3]->is_over());
  world.sender->end(made[0]->id);
  ASSERT_TRUE(all.run_until([&] { return made[3]->is_over(); }));
  EXPECT_EQ(made[3]->failed, made[3]->submitted);
}

TEST(Delivery, WhatNeverHasRoomForItsRecordsIsRefused) {
  // The source writes to two ranks, with 42 records each.
  Virtual all(layout_of({1, 16}), layout_of({2, 16}), 4, {.sidecar_records = 83});
  const auto begin = [&](uint32_t tokens) {
    auto plan =
        kv::TransferPlan::create(layout_of({1, 16}), layout_of({2, 16}), {.tokens = {0, tokens}})
            .value();
    const uint32_t pages = plan.slices_count();
    return all.world.sender->begin(
        {kFirst, std::make_shared<const kv::TransferPlan>(plan), std::vector<PageId>(pages), 0});
  };
  const auto refused = begin(100);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().what.find("84 sidecar records"), std::string::npos)
      << refused.error().what;
  EXPECT_TRUE(begin(96).ok());
}

TEST(Delivery, WhatAPeerSaysIsChecked) {
  Virtual all(layout_of({1, 16}), layout_of({1, 16}), 4);
  DeliveryWorld& world = all.world;
  const Handoff good = world.begin(kFirst, {0, 100});
  KvSender::Delivery bad{{kLink, {4, 1}}, good.plan, good.target_pages, ~uint64_t{0} / 24 + 1};
  EXPECT_EQ(world.sender->begin(bad).error().code, Code::kInvalidArgument) << "wraps around";
  bad.sidecar_first = 4000 - 41;
  EXPECT_EQ(world.sender->begin(bad).error().code, Code::kInvalidArgument);
  bad.sidecar_first = 0;
  bad.target_pages[0] = PageId{40};
  EXPECT_EQ(world.sender->begin(bad).error().code, Code::kInvalidArgument);
  bad.handoff.link = {1};
  EXPECT_EQ(world.sender->begin(bad).error().code, Code::kUnavailable);

  std::optional<LinkOffer> offer;
  world.receiver->open_link({5}, "prefill", world.sender->source(),
                            [&](Result<LinkOffer> got) { offer = got.value(); });
  ASSERT_TRUE(all.run_until([&] { return offer.has_value(); }));
  const auto opened = [&](LinkOffer changed) {
    std::optional<Result<void>> result;
    world.sender->open_link(std::move(changed), [&](Result<void> got) { result = std::move(got); });
    EXPECT_TRUE(all.run_until([&] { return result.has_value(); }));
    return *result;
  };
  LinkOffer short_memory = *offer;
  --short_memory.ranks[0].regions[0].memory.bytes;
  EXPECT_FALSE(opened(short_memory).ok());
  LinkOffer no_regions = *offer;
  no_regions.ranks[0].regions.clear();
  EXPECT_FALSE(opened(no_regions).ok());
  LinkOffer no_address = *offer;
  no_address.ranks[0].address.rails.clear();
  EXPECT_FALSE(opened(no_address).ok());
  EXPECT_TRUE(opened(*offer).ok());

  std::optional<Result<LinkOffer>> refused;
  world.receiver->open_link({6}, "prefill", {layout_of({1, 16}), {{}}},
                            [&](Result<LinkOffer> got) { refused = std::move(got); });
  ASSERT_TRUE(all.run_until([&] { return refused.has_value(); }));
  EXPECT_FALSE(refused->ok());
}

TEST(Delivery, ALinkThatIsClosedWhileItOpensIsNotToldOf) {
  Virtual all(layout_of({2, 16}), layout_of({2, 16}), 4);
  DeliveryWorld& world = all.world;
  world.receiver->open_link({5}, "prefill", world.sender->source(),
                            [&](const Result<LinkOffer>&) { ADD_FAILURE(); });
  world.receiver->fence({5});
  world.receiver->open_link({6}, "prefill", world.sender->source(),
                            [&](const Result<LinkOffer>&) { ADD_FAILURE(); });
  world.receiver->forget({6});
  ASSERT_TRUE(all.run_until([&] { return world.fenced.contains(5); }));
  all.executor.run_for(1s);
  EXPECT_FALSE(world.fenced.contains(6));
}

}  // namespace
}  // namespace tandem::cluster
