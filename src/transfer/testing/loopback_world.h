#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "transfer/loopback/loopback_fabric.h"
#include "transfer/transfer_engine.h"

namespace tandem::transfer {

/// Engines in one thread over a loopback fabric and virtual time, which only moves when nothing
/// else can.
class LoopbackWorld {
 public:
  explicit LoopbackWorld(uint64_t seed) : fabric(seed, clock()) {}

  Clock clock() {
    return [this] { return now; };
  }

  struct EngineSetup {
    EngineOptions options;
    uint32_t rails_count = 1;
    LoopbackRailOptions rail;
    std::function<void(std::span<const std::byte>)> on_message;
  };
  TransferEngine& add_engine(EngineSetup setup) {
    engines.push_back(make_engine(std::move(setup)));
    return *engines.back();
  }
  std::unique_ptr<TransferEngine> make_engine(EngineSetup setup) {
    std::vector<std::unique_ptr<Rail>> rails;
    for (uint32_t i = 0; i < setup.rails_count; ++i) {
      LoopbackRailOptions options = setup.rail;
      options.name = setup.options.name + " loopback" + std::to_string(i);
      rails.push_back(fabric.make_rail(options));
    }
    return TransferEngine::create(setup.options, std::move(rails), clock(),
                                  std::move(setup.on_message))
        .value();
  }

  const Rail& rail(const TransferEngine& engine, uint32_t index) { return *engine.rails()[index]; }

  /// One progress() of every engine; if none moved, time goes to the next event, but not beyond
  /// `end`. False when there is none either.
  bool step(TimePoint end = TimePoint::max()) {
    bool has_moved = false;
    for (const auto& engine : engines) {
      if (is_running(engine)) has_moved |= engine->progress();
    }
    if (has_moved) return true;
    std::optional<TimePoint> next = fabric.next_event();
    for (const auto& engine : engines) {
      if (!is_running(engine)) continue;
      const auto deadline = engine->next_deadline();
      if (deadline.has_value() && (!next.has_value() || *deadline < *next)) next = deadline;
    }
    if (!next.has_value()) return false;
    now = std::max(now, std::min(*next, end));
    return true;
  }
  /// Until nothing is left to do; false if that takes too many steps.
  bool run(uint64_t steps_max = 1'000'000) {
    for (uint64_t i = 0; i < steps_max; ++i) {
      if (!step()) return true;
    }
    return false;
  }
  /// For that much virtual time, or until nothing is left to do.
  void run_for(Duration duration) {
    const TimePoint end = now + duration;
    while (now < end && step(end)) {
    }
  }

  /// A stopped engine is not driven, as one whose process was stopped; its memory still changes.
  void set_stopped(const TransferEngine& engine, bool is_stopped) {
    if (is_stopped) {
      stopped.insert(&engine);
    } else {
      stopped.erase(&engine);
    }
  }
  bool is_running(const std::unique_ptr<TransferEngine>& engine) const {
    return engine != nullptr && !stopped.contains(engine.get());
  }

  TimePoint now{};
  LoopbackFabric fabric;
  std::vector<std::unique_ptr<TransferEngine>> engines;
  std::set<const TransferEngine*> stopped;
};

}  // namespace tandem::transfer
