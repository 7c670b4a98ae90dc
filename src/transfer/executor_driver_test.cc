// Goal: an engine moves by the executor's time alone: commands run later and in order, a transfer
// between two of them arrives, retries come when they are due, and a driver that is gone does
// nothing. Method: virtual time over the loopback.
#include "transfer/executor_driver.h"

#include <gtest/gtest.h>

#include <cstring>

#include "io/virtual_executor.h"
#include "transfer/loopback/loopback_fabric.h"

namespace tandem::transfer {
namespace {

using namespace std::chrono_literals;

class ExecutorDriverTest : public testing::Test {
 protected:
  std::unique_ptr<Driver> make_driver(const std::string& name, ExecutorDriverOptions options = {}) {
    std::vector<std::unique_ptr<Rail>> rails;
    rails.push_back(fabric_.make_rail({.name = name}));
    auto engine = TransferEngine::create({.name = name, .slices_max = 4}, std::move(rails),
                                         [this] { return executor_.now(); }, {})
                      .value();
    return std::make_unique<ExecutorDriver>(std::move(engine), executor_, options);
  }

  io::VirtualExecutor executor_;
  LoopbackFabric fabric_{1, [this] { return executor_.now(); }};
};

TEST_F(ExecutorDriverTest, CommandsRunLaterInOrderAndUpToTheLimit) {
  const auto driver = make_driver("busy", {.commands_max = 3});
  std::vector<int> ran;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(driver->submit([&ran, i](TransferEngine&) { ran.push_back(i); }).ok());
  }
  const auto refused = driver->submit([](TransferEngine&) {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_TRUE(ran.empty());
  executor_.run_for(1us);
  EXPECT_EQ(ran, (std::vector{0, 1, 2}));
}

TEST_F(ExecutorDriverTest, ATransferArrivesAndRoomIsToldOf) {
  fabric_.set_faults({.delay_min = 100us, .delay_max = 5ms});
  const auto target = make_driver("target");
  const auto source = make_driver("source");
  std::vector<std::byte> from(64, std::byte{7});
  std::vector<std::byte> to(64);
  EngineAddress address;
  RegionDescriptor region;
  bool has_arrived = false;
  ASSERT_TRUE(target
                  ->submit([&](TransferEngine& engine) {
                    address = engine.address();
                    const MemoryId memory = engine.add_memory({to.data(), to.size()}).value();
                    region = engine.grant(memory).value().descriptor;
                    ASSERT_TRUE(engine.expect({1, 1}, 4, [&] { has_arrived = true; }).ok());
                  })
                  .ok());
  executor_.run_for(1ms);
  int rooms = 0;
  bool has_ended = false;
  ASSERT_TRUE(
      source
          ->submit([&](TransferEngine& engine) {
            const MemoryId memory = engine.add_memory({from.data(), from.size()}).value();
            const PeerId peer = engine.add_peer("target", address).value();
            const TargetId id = engine.add_target(peer, region).value();
            const TransferId transfer =
                engine
                    .begin(
                        {.arrival = Arrival{1, 1},
                         .on_end = [&](const TransferEnd& end) { has_ended = end.outcome.ok(); }})
                    .value();
            std::vector<WriteRange> slices;
            for (uint64_t i = 0; i < 4; ++i) slices.push_back({i * 16, i * 16, 16});
            ASSERT_TRUE(engine.write(transfer, {memory, id}, slices).ok());
            EXPECT_FALSE(engine.write(transfer, {memory, id}, slices).ok()) << "no room";
            EXPECT_FALSE(engine.wait_for_room(5, [] {}).ok()) << "never fits";
            ASSERT_TRUE(engine.wait_for_room(4, [&] { ++rooms; }).ok());
            EXPECT_FALSE(engine.wait_for_room(1, [] {}).ok()) << "one waits already";
            ASSERT_TRUE(engine.finish(transfer).ok());
          })
          .ok());
  EXPECT_EQ(rooms, 0);
  executor_.run_for(100ms);
  EXPECT_EQ(rooms, 1);
  EXPECT_TRUE(has_ended);
  EXPECT_TRUE(has_arrived);
  EXPECT_EQ(from, to);
}

TEST_F(ExecutorDriverTest, AnIdleOneIsLookedAtLessAndLessOften) {
  const auto driver = make_driver("idle", {.sleep_min = 1ms, .sleep_max = 8ms});
  int steps = 0;
  const auto end = executor_.now() + 1s;
  while (executor_.step(end)) ++steps;
  EXPECT_GE(steps, 1000 / 8);
  EXPECT_LE(steps, 1000 / 8 + 8);
}

TEST_F(ExecutorDriverTest, WhatWaitsAtItsEndIsNotRun) {
  bool has_run = false;
  auto driver = make_driver("gone");
  ASSERT_TRUE(driver->submit([&](TransferEngine&) { has_run = true; }).ok());
  driver.reset();
  executor_.run_for(1s);
  EXPECT_FALSE(has_run);
}

}  // namespace
}  // namespace tandem::transfer
