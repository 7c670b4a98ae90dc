// Goal: what the contract of TransferEngine promises, case by case: bytes, counts, ends, limits.
// Method: two or three engines in virtual time over the loopback; target memory starts poisoned and
// every byte of it is compared afterwards.
#include "transfer/transfer_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "transfer/testing/engine_pair.h"

namespace tandem::transfer {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr uint64_t kBytes = kPairBytes;
using Pair = EnginePair;

TEST(TransferEngine, WritesAndCountsSlices) {
  Pair pair;
  pair.expect({3, 9}, 2);
  const TransferId transfer = pair.begin(Arrival{3, 9});
  const std::vector<WriteRange> slices = {{100, 7, 1000}, {5000, 9000, 333}};
  ASSERT_TRUE(pair.source->write(transfer, pair.path(), slices).ok());
  ASSERT_TRUE(pair.world.run());
  EXPECT_EQ(pair.completions, 1);
  EXPECT_EQ(pair.ends, 0) << "it is not finished";
  ASSERT_TRUE(pair.source->finish(transfer).ok());
  ASSERT_TRUE(pair.world.run());
  EXPECT_EQ(pair.ends, 1);
  EXPECT_TRUE(pair.end.outcome.ok());
  EXPECT_EQ(pair.end.bytes_delivered, 1333u);
  for (const WriteRange& range : slices) pair.expect_copied(range);
  EXPECT_EQ(pair.target_bytes, pair.expected);
}

TEST(TransferEngine, PagesHaveStrideAndOffsetOnEachSide) {
  Pair pair;
  pair.expect({0, 1}, 3);
  const TransferId transfer = pair.begin(Arrival{0, 1});
  const uint32_t from[] = {4, 0, 9};
  const uint32_t to[] = {1, 7, 2};
  ASSERT_TRUE(pair.source
                  ->write_pages(transfer, pair.path(),
                                {.pages = from, .stride_bytes = 1024, .base_offset = 256},
                                {.pages = to, .stride_bytes = 4096, .base_offset = 512}, 200)
                  .ok());
  ASSERT_TRUE(pair.source->finish(transfer).ok());
  ASSERT_TRUE(pair.world.run());
  for (int i = 0; i < 3; ++i) {
    pair.expect_copied({256 + 1024u * from[i], 512 + 4096u * to[i], 200});
  }
  EXPECT_EQ(pair.target_bytes, pair.expected);
  EXPECT_EQ(pair.completions, 1);
}

TEST(TransferEngine, ACutSliceStaysOneArrivalThatComesLast) {
  LoopbackWorld::EngineSetup setup{.rails_count = 2};
  setup.rail.limits.write_bytes_max = 1000;
  Pair pair(setup);
  pair.world.fabric.set_faults({.delay_min = 1us, .delay_max = 1ms});
  bool is_whole = false;
  ASSERT_TRUE(pair.target
                  ->expect({5, 2}, 1,
                           [&] {
                             ++pair.completions;
                             is_whole = pair.target_bytes == pair.source_bytes;
                           })
                  .ok());
  const TransferId transfer = pair.begin(Arrival{5, 2});
  ASSERT_TRUE(
      pair.source->write(transfer, pair.path(), std::vector<WriteRange>{{0, 0, kBytes}}).ok());
  ASSERT_TRUE(pair.source->finish(transfer).ok());
  ASSERT_TRUE(pair.world.run());
  EXPECT_EQ(pair.completions, 1);
  EXPECT_TRUE(is_whole);
  EXPECT_EQ(pair.ends, 1);
  EXPECT_GE(pair.source->counts().writes_posted, kBytes / 1000);
  EXPECT_EQ(pair.source->counts().slices_delivered, 1u);
}

TEST(TransferEngine, ImmediatesScatterAndBarrier) {
  Pair pair;
  std::vector<std::byte> other_bytes(kBytes, kPairPoison);
  TransferEngine& other = pair.world.add_engine({.options = {.name = "other"}});
  const MemoryId memory = other.add_memory({other_bytes.data(), kBytes}).value();
  const PeerId peer = pair.source->add_peer("other", other.address()).value();
  const TargetId other_id =
      pair.source->add_target(peer, other.grant(memory).value().descriptor).value();
  int other_completions = 0;
  ASSERT_TRUE(other.expect({1, 1}, 2, [&] { ++other_completions; }).ok());
  pair.expect({1, 1}, 3);
  const TransferId transfer = pair.begin(Arrival{1, 1});
  const std::vector<ScatterRange> slices = {{pair.target_id, {10, 20, 30}},
                                            {other_id, {40, 50, 60}}};
  ASSERT_TRUE(pair.source->scatter(transfer, pair.source_memory, slices).ok());
  ASSERT_TRUE(pair.source->write_imm(transfer, pair.target_id).ok());
  ASSERT_TRUE(pair.source->finish(transfer).ok());
  const std::vector<TargetId> targets = {pair.target_id, other_id};
  ASSERT_TRUE(pair.source->barrier(targets, {.arrival = Arrival{1, 1}}).ok());
  ASSERT_TRUE(pair.world.run());
  EXPECT_EQ(pair.completions, 1);
  EXPECT_EQ(other_completions, 1);
  pair.expect_copied({10, 20, 30});
  EXPECT_EQ(pair.target_bytes, pair.expected);
  EXPECT_EQ(std::memcmp(other_bytes.data() + 50, pair.source_bytes.data() + 40, 60), 0);
}

TEST(TransferEngine, ACallIsTakenAsAWholeOrRefused) {
  LoopbackWorld::EngineSetup setup;
  setup.options.slices_max = 4;
  setup.options.transfers_max = 1;
  Pair pair(setup);
  const TransferId transfer = pair.begin(Arrival{1, 1});
  std::vector<WriteRange> slices(5, {0, 0, 10});
  EXPECT_EQ(pair.source->write(transfer, pair.path(), slices).error().code,
            Code::kResourceExhausted);
  slices = {{0, 0, 10}, {0, kBytes - 5, 10}};
  const auto beyond = pair.source->write(transfer, pair.path(), slices);
  EXPECT_EQ(beyond.error().code, Code::kInvalidArgument);
  EXPECT_THAT(beyond.error().what, HasSubstr("target"));
  EXPECT_EQ(pair.source->slices_count(), 0u);
  EXPECT_EQ(pair.source->begin({}).error().code, Code::kResourceExhausted);
  EXPECT_FALSE(pair.source->remove_memory({999}).ok());
  EXPECT_FALSE(pair.source->write(transfer, {pair.source_memory, {999}}, slices).ok());
  EXPECT_FALSE(pair.source->write(transfer, {{999}, pair.target_id}, slices).ok());
}

TEST(TransferEngine, WhatIsInUseIsNotRemoved) {
  Pair pair;
  const TransferId transfer = pair.begin(std::nullopt);
  ASSERT_TRUE(pair.source->write(transfer, pair.path(), std::vector<WriteRange>{{0, 0, 100}}).ok());
  EXPECT_EQ(pair.source->remove_memory(pair.source_memory).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(pair.source->remove_target(pair.target_id).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(pair.target->remove_memory(pair.target_memory).error().code, Code::kFailedPrecondition);
  ASSERT_TRUE(pair.source->finish(transfer).ok());
  ASSERT_TRUE(pair.world.run());
  EXPECT_TRUE(pair.source->remove_target(pair.target_id).ok());
  EXPECT_TRUE(pair.source->remove_memory(pair.source_memory).ok());
}

TEST(TransferEngine, CancelStopsSubmissionAndEndsWhenDrained) {
  LoopbackWorld::EngineSetup setup;
  setup.rail.limits.posts_max = 2;
  Pair pair(setup);
  pair.world.fabric.set_faults({.delay_min = 1ms, .delay_max = 1ms});
  const TransferId transfer = pair.begin(Arrival{1, 1});
  std::vector<WriteRange> slices;
  for (uint64_t i = 0; i < 20; ++i) slices.push_back({i * 100, i * 100, 100});
  ASSERT_TRUE(pair.source->write(transfer, pair.path(), slices).ok());
  pair.source->progress();
  pair.source->cancel(transfer);
  pair.source->progress();
  EXPECT_EQ(pair.ends, 0) << "two writes are under way";
  ASSERT_TRUE(pair.world.run());
  EXPECT_EQ(pair.ends, 1);
  EXPECT_EQ(pair.end.outcome.error().code, Code::kCancelled);
  EXPECT_TRUE(pair.end.is_settled);
  EXPECT_EQ(pair.end.bytes_delivered, 200u);
  EXPECT_EQ(pair.source->counts().writes_posted, 2u);
  EXPECT_EQ(pair.source->slices_count(), 0u);
  pair.source->cancel(transfer);
  EXPECT_EQ(pair.source->finish(transfer).error().code, Code::kFailedPrecondition);
}

TEST(TransferEngine, MessagesArrive) {
  Pair pair;
  int sent = 0;
  const std::string text = "hello";
  ASSERT_TRUE(pair.source
                  ->send(pair.peer, std::as_bytes(std::span(text)),
                         [&](const Result<void>& result) { sent += result.ok() ? 1 : 100; })
                  .ok());
  ASSERT_TRUE(pair.world.run());
  EXPECT_EQ(sent, 1);
  EXPECT_THAT(pair.messages, testing::ElementsAre("hello"));
  const std::vector<std::byte> longer(pair.source->message_bytes_max() + 1);
  EXPECT_EQ(pair.source->send(pair.peer, longer, nullptr).error().code, Code::kInvalidArgument);
}

TEST(TransferEngine, ACallbackMaySubmitAgainAndMeetsTheLimitInsteadOfWaiting) {
  LoopbackWorld::EngineSetup setup;
  setup.options.slices_max = 8;
  setup.options.transfers_max = 4;
  setup.rail.limits.posts_max = 2;
  Pair pair(setup);
  int left = 500;
  int refused = 0;
  std::function<void(const TransferEnd&)> submit = [&](const TransferEnd&) {
    // Twice as many as ended, so that a limit is met for sure.
    for (int i = 0; i < 2 && left > 0; ++i) {
      const auto transfer = pair.source->begin({.on_end = submit});
      if (!transfer.ok()) {
        ++refused;
        continue;
      }
      --left;
      const std::vector<WriteRange> slices(3, {0, 0, 100});
      if (!pair.source->write(*transfer, pair.path(), slices).ok()) ++refused;
      ASSERT_TRUE(pair.source->finish(*transfer).ok());
    }
  };
  submit({});
  ASSERT_TRUE(pair.world.run());
  EXPECT_EQ(left, 0);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(pair.source->transfers_count(), 0u);
}

// The n-th registration fails, for every n, until all succeed; a failure leaves nothing behind.
TEST(TransferEngine, AFailedRegistrationLeavesNothingBehind) {
  std::vector<std::byte> bytes(100);
  for (uint32_t regions_max = 0; regions_max <= 2; ++regions_max) {
    LoopbackWorld world(1);
    std::vector<std::unique_ptr<Rail>> rails;
    rails.push_back(world.fabric.make_rail({.name = "roomy"}));
    rails.push_back(world.fabric.make_rail({.name = "scarce", .regions_max = regions_max}));
    auto engine = TransferEngine::create({}, std::move(rails), world.clock(), nullptr).value();
    const auto regions_count = [&](uint32_t rail) {
      return world.fabric.regions_count(*engine->rails()[rail]);
    };
    const auto memory = engine->add_memory({bytes.data(), bytes.size()});
    ASSERT_EQ(memory.ok(), regions_max >= 1);
    EXPECT_EQ(regions_count(0), regions_max >= 1 ? 1u : 0u);
    if (!memory.ok()) {
      EXPECT_THAT(memory.error().what, HasSubstr("scarce"));
      continue;
    }
    const auto grant = engine->grant(*memory);
    ASSERT_EQ(grant.ok(), regions_max >= 2);
    EXPECT_EQ(regions_count(0), regions_max >= 2 ? 2u : 1u);
    if (grant.ok()) engine->revoke(grant->id, nullptr);
    while (engine->progress()) {
    }
    EXPECT_TRUE(engine->remove_memory(*memory).ok());
    EXPECT_EQ(regions_count(0), 0u);
    EXPECT_EQ(regions_count(1), 0u);
  }
}

TEST(TransferEngine, OffsetsHave64Bits) {
  // 5 GiB of addresses of which only the touched pages become memory.
  constexpr size_t kLarge = size_t{5} << 30;
  const auto map = [&] {
    void* data = mmap(nullptr, kLarge, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
  };
  std::byte* from = map();
  std::byte* to = map();
  ASSERT_TRUE(from != nullptr && to != nullptr);
  Pair pair;
  const MemoryId source = pair.source->add_memory({from, kLarge}).value();
  const MemoryId target = pair.target->add_memory({to, kLarge}).value();
  const TargetId target_id =
      pair.source->add_target(pair.peer, pair.target->grant(target).value().descriptor).value();
  constexpr uint64_t kFrom = (uint64_t{1} << 32) + 12345;
  constexpr uint64_t kTo = (uint64_t{1} << 32) + (uint64_t{1} << 29) + 7;
  for (int i = 0; i < 100; ++i) from[kFrom + i] = static_cast<std::byte>(i + 1);
  const TransferId transfer = pair.begin(std::nullopt);
  const uint32_t pages[] = {1 << 20};
  ASSERT_TRUE(
      pair.source
          ->write_pages(
              transfer, {source, target_id},
              {.pages = pages, .stride_bytes = 4096, .base_offset = 12345},
              {.pages = pages, .stride_bytes = 4096, .base_offset = (uint64_t{1} << 29) + 7}, 100)
          .ok());
  ASSERT_TRUE(pair.source->finish(transfer).ok());
  ASSERT_TRUE(pair.world.run());
  EXPECT_EQ(std::memcmp(to + kTo, from + kFrom, 100), 0);
  EXPECT_EQ(to[kTo - (uint64_t{1} << 32)], std::byte{0});
  munmap(from, kLarge);
  munmap(to, kLarge);
}

TEST(TransferEngine, BadArgumentsAreErrors) {
  LoopbackWorld world(1);
  EXPECT_FALSE(TransferEngine::create({}, {}, world.clock(), nullptr).ok());
  Pair pair;
  EXPECT_FALSE(pair.source->add_peer("nobody", {}).ok());
  EXPECT_FALSE(pair.source->add_peer("nobody", {{Bytes(5)}}).ok());
  EXPECT_FALSE(pair.source->add_target(pair.peer, {.bytes = 5}).ok());
  const TransferId transfer = pair.begin(std::nullopt);
  EXPECT_FALSE(pair.source->write_imm(transfer, pair.target_id).ok());
  EXPECT_FALSE(pair.source->barrier({}, {}).ok());
}

}  // namespace
}  // namespace tandem::transfer
