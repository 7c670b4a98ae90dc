// Goal: K and V of a hand-off arrive whole, in their places and nowhere else, for any sharding and
// page sizes; what was damaged, repeated or is of another epoch is never proved.
// Method: real transfer engines in virtual time over a loopback that delays and reorders writes;
// pools of seeded bytes, compared whole. Another seed: --gtest_random_seed=N.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/delivery/testing/virtual_world.h"

namespace tandem::cluster {
namespace {

using namespace std::chrono_literals;
using testing::DeliveryWorld;
using testing::expect_delivery;
using ::testing::HasSubstr;
using testing::kFirst;
using testing::kLink;
using testing::kPoison;
using testing::layout_of;
using testing::Virtual;
using Handoff = DeliveryWorld::Handoff;

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

}  // namespace
}  // namespace tandem::cluster
