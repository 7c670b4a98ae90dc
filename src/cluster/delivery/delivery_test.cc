// Goal: K and V of a hand-off arrive whole, in their places and nowhere else, for any sharding and
// page sizes; what was damaged, repeated or is of another epoch is never proved; what was submitted
// is accounted for however it ends, and after a fence nothing changes.
// Method: real transfer engines in virtual time over a loopback that delays and reorders writes;
// pools of seeded bytes, compared whole. Another seed: --gtest_random_seed=N.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/delivery/testing/delivery_world.h"
#include "io/virtual_executor.h"
#include "transfer/executor_driver.h"
#include "transfer/loopback/loopback_fabric.h"

namespace tandem::cluster {
namespace {

using namespace std::chrono_literals;
using handoff::Key;
using handoff::LinkedKey;
using handoff::LinkId;
using testing::DeliveryWorld;
using ::testing::HasSubstr;
using testing::kPoison;
using testing::WorldPlace;
using Handoff = DeliveryWorld::Handoff;

constexpr LinkId kLink{77};
constexpr LinkedKey kFirst{kLink, {3, 1}};

struct Side {
  uint32_t ranks = 1;
  uint32_t page_tokens = 16;
};

kv::KvLayout layout_of(const Side& side, kv::KvElement element = kv::KvElement::kBF16,
                       uint32_t kv_heads = 2) {
  return {.element = element,
          .layers = 3,
          .kv_heads = kv_heads,
          .head_dim = 4,
          .page_tokens = side.page_tokens,
          .pages_total = 40,
          .rank_heads = kv::KvLayout::even_heads(kv_heads, side.ranks)};
}

/// A world in virtual time.
struct Virtual {
  struct Options {
    transfer::EngineOptions engine;
    transfer::ExecutorDriverOptions driver;
    uint64_t sidecar_records = 4000;
    uint32_t rails = 1;
  };
  Virtual(const kv::KvLayout& source, const kv::KvLayout& target, uint64_t seed)
      : Virtual(source, target, seed, Options{}) {}
  Virtual(const kv::KvLayout& source, const kv::KvLayout& target, uint64_t seed,
          const Options& options)
      : fabric(seed, [this] { return executor.now(); }),
        world(place(options), source, target, seed) {
    fabric.set_faults(kCalm);
    world.connect(kLink);
  }

  WorldPlace place(const Options& options) {
    return {.executor = executor,
            .run_until = [this](const auto& is_so) { return run_until(is_so); },
            .make_rails =
                [this, options](const std::string& name) {
                  std::vector<std::unique_ptr<transfer::Rail>> made;
                  for (uint32_t i = 0; i < options.rails; ++i) {
                    made.push_back(fabric.make_rail({.name = name}));
                    rails.emplace(name, made.back().get());
                  }
                  return made;
                },
            .options = {.engine = options.engine,
                        .sidecar_records = options.sidecar_records,
                        .clock = [this] { return executor.now(); },
                        .drive = [this, options](
                                     auto engine) -> Result<std::unique_ptr<transfer::Driver>> {
                          return std::unique_ptr<transfer::Driver>(
                              std::make_unique<transfer::ExecutorDriver>(std::move(engine),
                                                                         executor, options.driver));
                        }}};
  }
  bool run_until(const std::function<bool()>& is_so) {
    const auto end = executor.now() + 60s;
    while (!is_so()) {
      if (!executor.step(end)) return false;
    }
    return true;
  }

  static constexpr transfer::LoopbackFaults kCalm{.delay_min = 1us, .delay_max = 500us};
  io::VirtualExecutor executor;
  transfer::LoopbackFabric fabric;
  std::multimap<std::string, const transfer::Rail*> rails;  // by engine
  DeliveryWorld world;
};

/// All that a hand-off is when nothing goes wrong.
void expect_delivery(Virtual& all, LinkedKey id, kv::TokenRange tokens) {
  DeliveryWorld& world = all.world;
  const auto before = world.target_bytes();
  Handoff& made = world.begin(id, tokens);
  world.arm(made);
  world.submit_all(made);
  ASSERT_TRUE(all.run_until([&] { return world.has_arrived(made) && made.is_over(); }));
  EXPECT_EQ(made.failed, 0u);
  EXPECT_EQ(world.target_bytes(), world.expected_bytes(made, before));
  world.verify(made);
  EXPECT_TRUE(made.is_proved(world.target_ranks()));
  world.drop(made);
  world.sender->end(id);
}

class Layouts : public ::testing::TestWithParam<std::tuple<uint32_t, uint32_t>> {};

TEST_P(Layouts, ArriveWholeAndAreProved) {
  const auto [source_ranks, target_ranks] = GetParam();
  constexpr std::pair<uint32_t, uint32_t> kPages[] = {{16, 16}, {16, 32}, {32, 16}, {48, 64}};
  constexpr kv::KvElement kElements[] = {kv::KvElement::kF32, kv::KvElement::kBF16};
  uint64_t seed = static_cast<uint64_t>(GTEST_FLAG_GET(random_seed));
  for (const auto& [source_page, target_page] : kPages) {
    for (const kv::KvElement element : kElements) {
      SCOPED_TRACE("seed " + std::to_string(++seed));
      // Little room, so that slices wait for it.
      Virtual all(layout_of({source_ranks, source_page}, element),
                  layout_of({target_ranks, target_page}, element), seed,
                  {.engine = {.slices_max = 300}});
      const uint32_t first = all.world.number(150);
      expect_delivery(all, kFirst, {first, first + 1 + all.world.number(400)});
      expect_delivery(all, {kLink, {3, 2}}, {64, 65});
      expect_delivery(all, {kLink, {4, 70'000}}, {0, 600});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Delivery, Layouts,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::Values(1, 2, 4)),
                         [](const auto& info) {
                           std::string name("P");
                           name.append(std::to_string(std::get<0>(info.param))).append("D");
                           return name.append(std::to_string(std::get<1>(info.param)));
                         });

TEST(Delivery, SeveralHandoffsAtOnceShareRoomAndLinks) {
  Virtual all(layout_of({2, 16}), layout_of({1, 32}), 5, {.engine = {.slices_max = 300}});
  DeliveryWorld& world = all.world;
  std::vector<Handoff*> made;
  // Pages may be shared between them: only counts and records are looked at.
  for (uint16_t slot = 0; slot < 6; ++slot) {
    made.push_back(&world.begin({kLink, {slot, 9}}, {slot, 400u + slot}));
    world.arm(*made.back());
  }
  for (Handoff* each : made) world.submit_all(*each);
  ASSERT_TRUE(all.run_until([&] {
    return std::ranges::all_of(
        made, [&](const Handoff* each) { return world.has_arrived(*each) && each->is_over(); });
  }));
  for (const Handoff* each : made) EXPECT_EQ(each->failed, 0u);
}

TEST(Delivery, ADamagedByteIsNotProved) {
  Virtual all(layout_of({2, 16}), layout_of({1, 16}), 1);
  DeliveryWorld& world = all.world;
  Handoff& made = world.begin(kFirst, {5, 100});
  world.arm(made);
  transfer::LoopbackFaults faults = Virtual::kCalm;
  faults.damaged = 1;
  all.fabric.set_faults(faults);
  world.submit_all(made);
  ASSERT_TRUE(all.run_until([&] { return world.has_arrived(made); }));
  world.verify(made);
  ASSERT_FALSE(made.verdicts.at(0).ok());
  EXPECT_EQ(made.verdicts.at(0).error().code, Code::kDataLoss);
}

TEST(Delivery, EveryByteIsUnderTheProof) {
  Virtual all(layout_of({1, 32}), layout_of({2, 16}), 2);
  DeliveryWorld& world = all.world;
  Handoff& made = world.begin(kFirst, {5, 100});
  world.arm(made);
  world.submit_all(made);
  ASSERT_TRUE(all.run_until([&] { return world.has_arrived(made); }));
  const auto before = std::vector(world.target_memory[1]->memory().size(), kPoison);
  const auto now = world.target_bytes()[1];
  int tried = 0;
  for (size_t i = 0; i < now.size(); i += 1 + world.number(200)) {
    if (now[i] == before[i]) continue;  // perhaps not of this hand-off
    world.target_memory[1]->memory()[i] ^= std::byte{1};
    made.verdicts.clear();
    world.verify(made);
    EXPECT_TRUE(made.verdicts.at(0).ok());
    EXPECT_FALSE(made.verdicts.at(1).ok()) << "byte " << i;
    world.target_memory[1]->memory()[i] ^= std::byte{1};
    ++tried;
  }
  EXPECT_GT(tried, 20);
  made.verdicts.clear();
  world.verify(made);
  EXPECT_TRUE(made.is_proved(2));
}

TEST(Delivery, ARepeatedImmediateWakesEarlyButProvesNothing) {
  int unproved = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Virtual all(layout_of({2, 16}), layout_of({1, 16}), seed);
    DeliveryWorld& world = all.world;
    Handoff& made = world.begin(kFirst, {0, 200});
    world.arm(made);
    transfer::LoopbackFaults faults = Virtual::kCalm;
    faults.immediate_repeated = 0.3;
    all.fabric.set_faults(faults);
    world.submit_all(made);
    ASSERT_TRUE(all.run_until([&] { return world.has_arrived(made); }));
    world.verify(made);
    const auto expected =
        world.expected_bytes(made, {std::vector(world.target_memory[0]->memory().size(), kPoison)});
    if (made.is_proved(1)) {
      EXPECT_EQ(world.target_bytes(), expected) << "seed " << seed;
    }
    unproved += made.verdicts.at(0).ok() ? 0 : 1;
  }
  EXPECT_GT(unproved, 0);
}

TEST(Delivery, AnotherEpochIsNeitherCountedNorProved) {
  Virtual all(layout_of({1, 16}), layout_of({2, 16}), 3);
  DeliveryWorld& world = all.world;
  Handoff& old = world.begin(kFirst, {0, 100});
  world.arm(old);
  world.drop(old);  // cancelled, and the slot is used again before its writes come
  Handoff& next = world.begin({kLink, {3, 2}}, {0, 100});
  next.target_pages = old.target_pages;
  next.sidecar_first = old.sidecar_first;
  world.arm(next);
  world.submit_all(old);
  ASSERT_TRUE(all.run_until([&] { return old.is_over(); }));
  all.executor.run_for(10ms);
  EXPECT_TRUE(old.arrived.empty()) << "dropped";
  EXPECT_TRUE(next.arrived.empty());
  world.verify(next);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_FALSE(next.verdicts.at(rank).ok());
    EXPECT_THAT(next.verdicts.at(rank).error().what, HasSubstr("epoch 1 instead of 2"));
  }
}

TEST(Delivery, WhatIsDroppedIsNotToldEvenWhenItHasArrived) {
  Virtual all(layout_of({1, 16}), layout_of({1, 16}), 3);
  DeliveryWorld& world = all.world;
  Handoff& made = world.begin(kFirst, {0, 16});
  world.arm(made);
  const auto before = world.target_bytes();
  world.submit_all(made);
  // The last byte is there; what says so is on its way to the owner.
  const auto expected = world.expected_bytes(made, before);
  ASSERT_TRUE(all.run_until([&] { return world.target_bytes() == expected; }));
  world.drop(made);
  all.executor.run_for(100ms);
  EXPECT_TRUE(made.arrived.empty());
  EXPECT_TRUE(made.is_over());
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

TEST(Delivery, RoomForRecordsIsTakenAndGivenBack) {
  // Three layers of K and V, 7 slices: 42 records a hand-off.
  Virtual all(layout_of({1, 16}), layout_of({1, 16}), 4, {.sidecar_records = 142});
  DeliveryWorld& world = all.world;
  const auto submit = [&](uint16_t slot) {
    const LinkedKey id{kLink, {slot, 1}};
    Handoff& made = world.begin(id, {0, 100});
    const auto submitted = world.sender->submit(id, {0, 0, 0, 50});
    made.submitted = submitted.writes;
    return submitted;
  };
  for (uint16_t slot = 0; slot < 3; ++slot) EXPECT_FALSE(submit(slot).error);
  const auto refused = submit(3);
  EXPECT_EQ(refused.writes, 0u);
  EXPECT_EQ(refused.error.value().code, Code::kResourceExhausted);
  for (uint16_t slot = 0; slot < 4; ++slot) world.sender->stop({kLink, {slot, 1}});
  ASSERT_TRUE(all.run_until([&] {
    return std::ranges::all_of(world.handoffs,
                               [](const auto& each) { return each.second.is_over(); });
  }));
  for (uint16_t slot = 0; slot < 4; ++slot) world.sender->end({kLink, {slot, 1}});
  EXPECT_FALSE(submit(5).error);
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
