// Goal: the same hand-offs over real threads: a thread for every engine, one for the owner; also
// meant for TSan. Method: loopback rails that are slept on, and libfabric over tcp in one process.
#include <gtest/gtest.h>

#include "cluster/delivery/testing/delivery_world.h"
#include "io/event_loop.h"
#include "transfer/engine_driver.h"
#include "transfer/libfabric/prepare.h"
#include "transfer/libfabric/rail.h"
#include "transfer/loopback/loopback_fabric.h"

namespace tandem::cluster {
namespace {

using namespace std::chrono_literals;
using testing::DeliveryWorld;
using testing::WorldPlace;

using Rails = std::vector<std::unique_ptr<transfer::Rail>>;

kv::KvLayout layout_of(uint32_t ranks, uint32_t page_tokens) {
  return {.layers = 4,
          .kv_heads = 2,
          .head_dim = 16,
          .page_tokens = page_tokens,
          .pages_total = 64,
          .rank_heads = kv::KvLayout::even_heads(2, ranks)};
}

WorldPlace place_of(io::EventLoop& loop, std::function<Rails(const std::string&)> make_rails) {
  return {
      .executor = loop,
      .run_until = [&loop](const auto& is_so) { return loop.run_until(is_so, loop.now() + 60s); },
      .make_rails = std::move(make_rails),
      .options = {.sidecar_records = 4000,
                  .clock = std::chrono::steady_clock::now,
                  .drive = [](auto engine) -> Result<std::unique_ptr<transfer::Driver>> {
                    std::unique_ptr<transfer::Driver> driver =
                        TANDEM_TRY(transfer::EngineDriver::start(std::move(engine), {}));
                    return driver;
                  }}};
}

/// Ten hand-offs one after another; then the link is fenced in the middle of one.
void expect_life(WorldPlace place) {
  constexpr handoff::LinkId kLink{5};
  DeliveryWorld world(std::move(place), layout_of(2, 16), layout_of(4, 32), 1);
  world.connect(kLink);
  for (uint64_t epoch = 1; epoch <= 10; ++epoch) {
    const handoff::LinkedKey id{kLink, {1, epoch}};
    const auto before = world.target_bytes();
    auto& made = world.begin(id, {world.number(40), 600});
    world.arm(made);
    world.submit_all(made);
    ASSERT_TRUE(world.place.run_until([&] { return world.has_arrived(made) && made.is_over(); }));
    EXPECT_EQ(made.failed, 0u);
    EXPECT_EQ(world.target_bytes(), world.expected_bytes(made, before));
    world.verify(made);
    EXPECT_TRUE(made.is_proved(world.target_ranks()));
    world.drop(made);
    world.sender->end(id);
  }
  const handoff::LinkedKey id{kLink, {1, 11}};
  auto& made = world.begin(id, {0, 600});
  world.arm(made);
  world.submit_up_to(made, 400);
  world.drop(made);
  world.receiver->fence(kLink);
  ASSERT_TRUE(world.place.run_until([&] { return world.fenced.contains(kLink.value); }));
  const auto fenced = world.target_bytes();
  world.sender->stop(id);
  ASSERT_TRUE(world.place.run_until([&] { return made.is_over(); }));
  EXPECT_EQ(world.target_bytes(), fenced);
  world.sender->end(id);
  world.sender->close_link(kLink);
}

TEST(DeliveryThreads, OverLoopback) {
  io::EventLoop loop;
  transfer::LoopbackFabric fabric(1, std::chrono::steady_clock::now);
  expect_life(place_of(loop, [&](const std::string& name) {
    Rails rails;
    rails.push_back(fabric.make_rail({.name = name, .has_wait_descriptor = true}));
    return rails;
  }));
}

TEST(DeliveryThreads, OverTcp) {
  transfer::prepare_libfabric();
  io::EventLoop loop;
  expect_life(place_of(loop, [&](const std::string&) {
    Rails rails;
    rails.push_back(
        transfer::create_libfabric_rail({.network = {.provider = "tcp", .interface = "127.0.0.1"}})
            .value());
    return rails;
  }));
}

}  // namespace
}  // namespace tandem::cluster
