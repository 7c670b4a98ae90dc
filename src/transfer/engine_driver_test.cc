// Goal: two engines on threads of their own move bytes and count them, commands come from many
// threads at once, nothing waits for ever, and an idle thread sleeps. Meant to run under TSan, too.
// Method: real time over the loopback without faults; results cross back over promises.
#include "transfer/engine_driver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <future>

#include "transfer/loopback/loopback_fabric.h"

namespace tandem::transfer {
namespace {

using namespace std::chrono_literals;

constexpr size_t kBytes = 32 * 1024;

Clock steady() {
  return [] { return std::chrono::steady_clock::now(); };
}

std::unique_ptr<EngineDriver> make_driver(LoopbackFabric& fabric, const std::string& name,
                                          DriverOptions options = {}, bool has_wait = false) {
  std::vector<std::unique_ptr<Rail>> rails;
  for (int i = 0; i < 2; ++i) {
    rails.push_back(fabric.make_rail({.name = name, .has_wait_descriptor = has_wait}));
  }
  auto engine =
      TransferEngine::create({.name = name, .stripe_bytes = 4096}, std::move(rails), steady(), {})
          .value();
  options.thread_name = name;
  return EngineDriver::start(std::move(engine), options).value();
}

/// Runs it on the driver's thread and waits for what it returns.
template <typename Function>
auto on_thread(EngineDriver& driver, Function function) {
  std::promise<decltype(function(std::declval<TransferEngine&>()))> promise;
  EXPECT_TRUE(
      driver.submit([&](TransferEngine& engine) { promise.set_value(function(engine)); }).ok());
  return promise.get_future().get();
}

/// A transfer of eight slices from one thread to another.
void expect_transfer(EngineDriver& source, EngineDriver& target, Arrival arrival) {
  std::vector<std::byte> source_bytes(kBytes, std::byte{0x5a});
  std::vector<std::byte> target_bytes(kBytes, std::byte{0xee});
  std::promise<void> complete;
  struct There {
    Bytes address;
    Bytes region;
  };
  const There there = on_thread(target, [&](TransferEngine& engine) {
    const MemoryId memory = engine.add_memory({target_bytes.data(), kBytes}).value();
    EXPECT_TRUE(engine.expect(arrival, 8, [&] { complete.set_value(); }).ok());
    return There{encode(engine.address()), encode(engine.grant(memory).value().descriptor)};
  });
  std::promise<TransferEnd> ended;
  on_thread(source, [&](TransferEngine& engine) {
    const MemoryId memory = engine.add_memory({source_bytes.data(), kBytes}).value();
    const PeerId peer = engine.add_peer("target", decode_address(there.address).value()).value();
    const TargetId region = engine.add_target(peer, decode_region(there.region).value()).value();
    const TransferId transfer =
        engine
            .begin({.arrival = arrival,
                    .on_end = [&](const TransferEnd& end) { ended.set_value(end); }})
            .value();
    std::vector<WriteRange> slices;
    for (size_t i = 0; i < 8; ++i) slices.push_back({i * 4096, i * 4096, 4096});
    EXPECT_TRUE(engine.write(transfer, {memory, region}, slices).ok());
    EXPECT_TRUE(engine.finish(transfer).ok());
    return 0;
  });
  complete.get_future().get();
  EXPECT_EQ(target_bytes, source_bytes);
  EXPECT_TRUE(ended.get_future().get().outcome.ok());
}

TEST(EngineDriver, MovesBytesBetweenThreads) {
  LoopbackFabric fabric(1, steady());
  fabric.set_faults({.delay_max = 50us});
  const auto target = make_driver(fabric, "target");
  const auto source = make_driver(fabric, "source");
  expect_transfer(*source, *target, {1, 1});
}

TEST(EngineDriver, ASleepOnDescriptorsEndsWithAnArrivalOrACommand) {
  LoopbackFabric fabric(1, steady());
  const auto target = make_driver(fabric, "target", {.looks_max = 1}, true);
  const auto source = make_driver(fabric, "source", {.looks_max = 1}, true);
  const auto before = std::chrono::steady_clock::now();
  for (uint16_t epoch = 1; epoch <= 200; ++epoch) {
    expect_transfer(*source, *target, {1, epoch});
    if (epoch % 20 == 0) std::this_thread::sleep_for(2ms);  // both fall asleep
  }
  // A wake-up that is lost costs a quarter of a second each.
  EXPECT_LT(std::chrono::steady_clock::now() - before, 5s);
}

TEST(EngineDriver, CommandsOfManyThreadsRunOnceAndInOrder) {
  LoopbackFabric fabric(1, steady());
  const auto driver = make_driver(fabric, "busy", {.commands_max = 16});
  constexpr int kThreads = 4;
  constexpr int kCommands = 2000;
  std::vector<std::vector<int>> seen(kThreads);  // of the driver's thread
  std::atomic<int> refused = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCommands;) {
        if (driver->submit([&seen, t, i](TransferEngine&) { seen[t].push_back(i); }).ok()) {
          ++i;
        } else {
          ++refused;
          std::this_thread::yield();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<int> expected(kCommands);
  for (int i = 0; i < kCommands; ++i) expected[i] = i;
  while (!driver->submit([](TransferEngine&) {}).ok()) std::this_thread::yield();
  const auto result = on_thread(*driver, [&](TransferEngine&) { return seen; });
  for (const std::vector<int>& commands : result) EXPECT_EQ(commands, expected);
}

TEST(EngineDriver, ACommandMaySubmitAndMeetsTheLimitInsteadOfWaiting) {
  LoopbackFabric fabric(1, steady());
  const auto driver = make_driver(fabric, "nested", {.commands_max = 2});
  const int accepted = on_thread(*driver, [&](TransferEngine&) {
    int count = 0;
    for (int i = 0; i < 5; ++i) count += driver->submit([](TransferEngine&) {}).ok() ? 1 : 0;
    return count;
  });
  EXPECT_EQ(accepted, 2);
}

TEST(EngineDriver, AnIdleThreadSleepsAndWakesForACommand) {
  LoopbackFabric fabric(1, steady());
  // A sleep of hours: only a wake-up ends it.
  const auto driver =
      make_driver(fabric, "idle", {.looks_max = 1, .sleep_min = 10h, .sleep_max = 10h});
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(100ms);
  const double busy_s = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(busy_s, 0.05) << "of 0.1 s";
  EXPECT_EQ(on_thread(*driver, [](TransferEngine&) { return 7; }), 7);
}

TEST(EngineDriver, OptionsThatCannotBeAreErrors) {
  LoopbackFabric fabric(1, steady());
  std::vector<std::unique_ptr<Rail>> rails;
  rails.push_back(fabric.make_rail({}));
  auto engine = TransferEngine::create({}, std::move(rails), steady(), {}).value();
  EXPECT_FALSE(EngineDriver::start(std::move(engine), {.sleep_min = Duration::zero()}).ok());
}

}  // namespace
}  // namespace tandem::transfer
