// Goal: a lost rail, a dead or closed peer and a revoked grant end as the contract of
// TransferEngine says: taken over, or failed with a name; never a byte after a fence. Method: two
// engines in virtual time over the loopback, one fault at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "transfer/testing/engine_pair.h"
#include "transfer/transfer_engine.h"

namespace tandem::transfer {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr uint64_t kBytes = kPairBytes;
using Pair = EnginePair;

TEST(TransferEngineLoss, TheOtherRailTakesOverWhatALostOneDidNotDeliver) {
  LoopbackWorld::EngineSetup setup{.rails_count = 2};
  setup.options.stripe_bytes = 1024;
  Pair pair(setup);
  pair.world.fabric.set_faults(
      {.delay_min = 10us, .delay_max = 200us, .lands_late = 0.5, .late_max = 50ms});
  pair.expect({1, 1}, 40);
  const TransferId transfer = pair.begin(Arrival{1, 1});
  for (uint64_t i = 0; i < 40; ++i) {
    const WriteRange slice{i * 1500, i * 1600, 1500};
    ASSERT_TRUE(pair.source->write(transfer, pair.path(), std::vector<WriteRange>{slice}).ok());
    pair.expect_copied(slice);
  }
  pair.world.run_for(150us);
  pair.world.fabric.fail_rail(pair.world.rail(*pair.source, 0));
  ASSERT_TRUE(pair.source->finish(transfer).ok());
  ASSERT_TRUE(pair.world.run());
  EXPECT_EQ(pair.ends, 1);
  EXPECT_TRUE(pair.end.outcome.ok()) << pair.end.outcome.error().what;
  EXPECT_EQ(pair.completions, 1);
  EXPECT_EQ(pair.target_bytes, pair.expected);
  EXPECT_EQ(pair.source->open_paths(pair.peer), 1u);
  EXPECT_EQ(pair.target->counts().fences_served, 1u);
  EXPECT_GT(pair.source->counts().writes_repeated, 0u);
}

// One rail fails at any time, and the target sleeps at any time, so that what its rails have to
// report piles up. The count must complete once, when all is there, and then nothing may change.
TEST(TransferEngineLoss, ARailLostAtAnyTimeLeavesTheCountExact) {
  constexpr uint64_t kSlices = 60;
  uint64_t partly_arrived = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    LoopbackWorld::EngineSetup setup{.rails_count = 3};
    setup.options.steps_max = 1 + static_cast<uint32_t>(random() % 3);
    setup.rail.limits.posts_max = 12;
    Pair pair(setup, seed);
    // Somebody else keeps one rail of the target busier than the others.
    TransferEngine& noisy = pair.world.add_engine(setup);
    const PeerId noisy_peer = noisy.add_peer("target", pair.target->address()).value();
    const TargetId noisy_target =
        noisy.add_target(noisy_peer, pair.target->grant(pair.target_memory).value().descriptor)
            .value();
    for (uint32_t rail : {0u, 1u}) pair.world.fabric.fail_rail(pair.world.rail(noisy, rail));
    const std::vector<TargetId> noise(seed % 2 * 300, noisy_target);
    ASSERT_TRUE(noisy.barrier(noise, {.arrival = Arrival{9, 1}}).ok());
    pair.world.fabric.set_faults(
        {.delay_min = 1us, .delay_max = 100us, .lands_late = 0.3, .late_max = 300us});
    ASSERT_TRUE(pair.target
                    ->expect({1, 1}, kSlices,
                             [&] {
                               ++pair.completions;
                               EXPECT_EQ(pair.target_bytes, pair.expected);
                               std::ranges::fill(pair.target_bytes, kPairPoison);
                             })
                    .ok());
    const TransferId transfer = pair.begin(Arrival{1, 1});
    std::vector<WriteRange> slices;
    for (uint64_t i = 0; i < kSlices; ++i) slices.push_back({i * 1000, i * 1001, 1 + i * 15});
    for (const WriteRange& slice : slices) pair.expect_copied(slice);
    ASSERT_TRUE(pair.source->write(transfer, pair.path(), slices).ok());
    ASSERT_TRUE(pair.source->finish(transfer).ok());
    const auto some_time = [&] { return std::chrono::microseconds(random() % 300); };
    pair.world.run_for(some_time());
    pair.world.set_stopped(*pair.target, true);
    pair.world.run_for(some_time());
    pair.world.fabric.fail_rail(pair.world.rail(*pair.source, random() % 3));
    // A slow target: it looks at its rails now and then only.
    for (uint64_t looks = random() % 400; looks > 0; --looks) {
      pair.world.run_for(std::chrono::microseconds(1 + random() % 30));
      pair.target->progress();
    }
    pair.world.set_stopped(*pair.target, false);
    ASSERT_TRUE(pair.world.run());
    EXPECT_EQ(pair.ends, 1);
    EXPECT_TRUE(pair.end.outcome.ok()) << pair.end.outcome.error().what;
    EXPECT_EQ(pair.completions, 1);
    EXPECT_EQ(pair.target->arrivals().late, 0u);
    EXPECT_EQ(pair.target_bytes, std::vector<std::byte>(kBytes, kPairPoison));
    const EngineCounts& counts = pair.source->counts();
    partly_arrived +=
        counts.immediates_repeated > 0 && counts.immediates_repeated < counts.writes_repeated;
  }
  EXPECT_GT(partly_arrived, 10u);
}

TEST(TransferEngineLoss, WithoutASoleWriterADoubtfulImmediateIsAFailure) {
  LoopbackWorld::EngineSetup setup{.rails_count = 2};
  Pair pair(setup);
  pair.world.fabric.set_faults({.delay_min = 10us, .delay_max = 10us});
  const TransferId transfer = pair.begin(Arrival{1, 1}, false);
  ASSERT_TRUE(
      pair.source
          ->write(transfer, pair.path(), std::vector<WriteRange>{{0, 0, 100}, {100, 100, 100}})
          .ok());
  pair.world.run_for(15us);
  pair.world.fabric.fail_rail(pair.world.rail(*pair.source, 0));
  ASSERT_TRUE(pair.world.run());
  EXPECT_EQ(pair.ends, 1);
  EXPECT_THAT(pair.end.outcome.error().what, HasSubstr("another writer"));
  EXPECT_TRUE(pair.end.is_settled);
}

TEST(TransferEngineLoss, WithoutARailLeftTheErrorNamesPeerRailAndBytes) {
  Pair pair;
  pair.world.fabric.set_faults({.delay_min = 10us, .delay_max = 10us});
  const TransferId transfer = pair.begin(Arrival{1, 1});
  ASSERT_TRUE(pair.source->write(transfer, pair.path(), std::vector<WriteRange>{{0, 0, 100}}).ok());
  ASSERT_TRUE(pair.world.run());
  ASSERT_TRUE(pair.source->write(transfer, pair.path(), std::vector<WriteRange>{{0, 0, 500}}).ok());
  pair.world.run_for(15us);
  pair.world.engines[1] = nullptr;  // the target's process dies
  ASSERT_TRUE(pair.world.run());
  ASSERT_EQ(pair.ends, 1);
  const Error& error = pair.end.outcome.error();
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_THAT(error.what, HasSubstr("100 of 600 bytes"));
  EXPECT_THAT(error.what, HasSubstr("peer target"));
  EXPECT_THAT(error.what, HasSubstr("source loopback0"));
  EXPECT_FALSE(pair.end.is_settled);
  EXPECT_EQ(pair.source->open_paths(pair.peer), 0u);
}

TEST(TransferEngineLoss, AfterRevokeNothingLandsThroughTheGrant) {
  Pair pair;
  pair.world.fabric.set_faults({.delay_min = 10us, .delay_max = 300us});
  pair.expect({1, 1}, 64);
  const TransferId transfer = pair.begin(Arrival{1, 1});
  for (uint64_t i = 0; i < 64; ++i) {
    ASSERT_TRUE(
        pair.source
            ->write(transfer, pair.path(), std::vector<WriteRange>{{i * 1000, i * 1000, 1000}})
            .ok());
  }
  pair.world.run_for(200us);
  std::optional<bool> fenced;
  std::vector<std::byte> at_fence;
  pair.target->revoke(pair.grant.id, [&](bool is_fenced) {
    fenced = is_fenced;
    at_fence = pair.target_bytes;
  });
  ASSERT_TRUE(pair.world.run());
  EXPECT_EQ(fenced, true);
  EXPECT_EQ(pair.target_bytes, at_fence);
  EXPECT_EQ(pair.completions, 0);
  ASSERT_EQ(pair.ends, 1);
  EXPECT_THAT(pair.end.outcome.error().what, HasSubstr("refused"));
  EXPECT_TRUE(pair.end.is_settled);
}

TEST(TransferEngineLoss, ARailThatCannotFenceSaysSo) {
  LoopbackWorld::EngineSetup setup;
  setup.rail.can_fence = false;
  setup.rail.has_virtual_addresses = true;
  Pair pair(setup);
  std::optional<bool> fenced;
  pair.target->revoke(pair.grant.id, [&](bool is_fenced) { fenced = is_fenced; });
  ASSERT_TRUE(pair.world.run());
  EXPECT_EQ(fenced, false);
}

TEST(TransferEngineLoss, APathThatDeliversNothingIsLost) {
  LoopbackWorld::EngineSetup setup{.rails_count = 2};
  setup.options.stall_max = 1s;
  Pair pair(setup);
  pair.world.fabric.set_cut(pair.world.rail(*pair.source, 0), pair.world.rail(*pair.target, 0),
                            true);
  pair.expect({1, 1}, 10);
  const TransferId transfer = pair.begin(Arrival{1, 1});
  for (uint64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(
        pair.source
            ->write(transfer, pair.path(), std::vector<WriteRange>{{i * 1000, i * 1000, 1000}})
            .ok());
    pair.expect_copied({i * 1000, i * 1000, 1000});
  }
  ASSERT_TRUE(pair.source->finish(transfer).ok());
  ASSERT_TRUE(pair.world.run());
  EXPECT_EQ(pair.completions, 1);
  EXPECT_EQ(pair.ends, 1);
  EXPECT_TRUE(pair.end.outcome.ok());
  EXPECT_EQ(pair.target_bytes, pair.expected);
  EXPECT_GE(pair.world.now, TimePoint{} + 1s);
  EXPECT_LE(pair.world.now, TimePoint{} + 2s);
}

TEST(TransferEngineLoss, AnEngineThatWasStoppedItselfBlamesNoPath) {
  LoopbackWorld::EngineSetup setup;
  setup.options.stall_max = 1s;
  Pair pair(setup);
  const Rail& from = pair.world.rail(*pair.source, 0);
  const Rail& to = pair.world.rail(*pair.target, 0);
  pair.world.fabric.set_clogged(from, to, true);
  pair.expect({1, 1}, 1);
  const TransferId transfer = pair.begin(Arrival{1, 1});
  ASSERT_TRUE(pair.source->write(transfer, pair.path(), std::vector<WriteRange>{{0, 0, 100}}).ok());
  ASSERT_TRUE(pair.source->finish(transfer).ok());
  pair.world.run_for(100ms);
  pair.world.now += 60s;
  pair.source->progress();
  pair.world.fabric.set_clogged(from, to, false);
  ASSERT_TRUE(pair.world.run());
  EXPECT_EQ(pair.completions, 1);
  EXPECT_TRUE(pair.end.outcome.ok());
  EXPECT_EQ(pair.source->counts().paths_lost, 0u);
}

TEST(TransferEngineLoss, AClosedPeerEndsItsTransfersAndIsForgotten) {
  Pair pair;
  pair.world.fabric.set_faults({.delay_min = 10us, .delay_max = 10us});
  const TransferId transfer = pair.begin(Arrival{1, 1});
  ASSERT_TRUE(pair.source->write(transfer, pair.path(), std::vector<WriteRange>{{0, 0, 100}}).ok());
  pair.source->progress();
  pair.source->close_peer(pair.peer);
  ASSERT_TRUE(pair.world.run());
  EXPECT_EQ(pair.ends, 1);
  EXPECT_FALSE(pair.end.outcome.ok());
  EXPECT_FALSE(pair.source->add_target(pair.peer, pair.grant.descriptor).ok());
  // The peer returns under another id, and the same grant still holds.
  const PeerId peer = pair.source->add_peer("target", pair.target->address()).value();
  pair.target_id = pair.source->add_target(peer, pair.grant.descriptor).value();
  pair.expect({2, 1}, 1);
  const TransferId again = pair.begin(Arrival{2, 1});
  ASSERT_TRUE(pair.source->write(again, pair.path(), std::vector<WriteRange>{{0, 0, 100}}).ok());
  ASSERT_TRUE(pair.source->finish(again).ok());
  ASSERT_TRUE(pair.world.run());
  EXPECT_EQ(pair.completions, 1);
}

}  // namespace
}  // namespace tandem::transfer
