#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/delivery/testing/delivery_world.h"
#include "io/virtual_executor.h"
#include "transfer/executor_driver.h"
#include "transfer/loopback/loopback_fabric.h"

namespace tandem::cluster::testing {

inline constexpr handoff::LinkId kLink{77};
inline constexpr handoff::LinkedKey kFirst{kLink, {3, 1}};

struct Side {
  uint32_t ranks = 1;
  uint32_t page_tokens = 16;
};

inline kv::KvLayout layout_of(const Side& side, kv::KvElement element = kv::KvElement::kBF16,
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
    const auto end = executor.now() + std::chrono::seconds(60);
    while (!is_so()) {
      if (!executor.step(end)) return false;
    }
    return true;
  }

  static constexpr transfer::LoopbackFaults kCalm{.delay_min = std::chrono::microseconds(1),
                                                  .delay_max = std::chrono::microseconds(500)};
  io::VirtualExecutor executor;
  transfer::LoopbackFabric fabric;
  std::multimap<std::string, const transfer::Rail*> rails;  // by engine
  DeliveryWorld world;
};

/// All that a hand-off is when nothing goes wrong.
inline void expect_delivery(Virtual& all, handoff::LinkedKey id, kv::TokenRange tokens) {
  DeliveryWorld& world = all.world;
  const auto before = world.target_bytes();
  DeliveryWorld::Handoff& made = world.begin(id, tokens);
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

}  // namespace tandem::cluster::testing
