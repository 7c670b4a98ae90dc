#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/handoff/message.h"
#include "cluster/handoff/testing/fake_memory.h"
#include "cluster/handoff/testing/timeline.h"

namespace tandem::cluster::handoff::testing {

/// What the fabric and the network do, in chances of 1000 per message or write.
struct Faults {
  uint32_t lost_messages = 0;
  uint32_t repeated_messages = 0;
  uint32_t late_messages = 0;  // by up to 4 s
  uint32_t failed_writes = 0;
  uint32_t unsubmitted_writes = 0;
  uint32_t late_writes = 0;  // by up to 9 s
  uint32_t damaged_writes = 0;
  uint32_t uncounted_writes = 0;
  uint32_t recounted_writes = 0;
  bool can_fence = true;
};

/// A process: what comes to it waits while it is stopped and is lost when it is dead.
class Process {
 public:
  bool is_alive = true;
  bool is_stopped = false;

  void deliver(Timeline::Action action) {
    if (!is_alive) return;
    waiting_.push_back(std::move(action));
    if (!is_stopped) run();
  }
  /// What waits is lost too; it may hold what owns this process.
  void kill() {
    is_alive = false;
    waiting_.clear();
  }
  void resume() {
    is_stopped = false;
    run();
  }

 private:
  void run() {
    while (!waiting_.empty() && is_alive && !is_stopped) {
      const auto actions = std::exchange(waiting_, {});
      for (const auto& action : actions) action();
    }
  }
  std::vector<Timeline::Action> waiting_;
};

/// What joins a decoder's process and a prefiller's.
struct FakeLink {
  LinkId id;
  std::shared_ptr<Process> decoder;
  std::shared_ptr<Process> prefiller;
  bool is_registered = true;  // the decoder's pools, for this link's writes
  std::function<void(const Message&)> to_decoder;
  std::function<void(const Message&)> to_prefiller;
};

/// Time, chance, network and what went wrong.
struct World {
  World(uint64_t seed, const Shape& the_shape) : dice(seed), shape(the_shape) {}

  void carry(LinkId link, const Message& message, bool to_decoder) {
    if (tap && !tap(message, to_decoder)) return;
    if (dice.permille(faults.lost_messages)) return;
    const int copies = dice.permille(faults.repeated_messages) ? 2 : 1;
    const std::vector<std::byte> bytes = encode(message, MessageLimits{});
    for (int copy = 0; copy < copies; ++copy) {
      const int64_t delay_us =
          dice.permille(faults.late_messages) ? dice.between(1, 4'000'000) : dice.between(20, 3000);
      timeline.after(delay_us, [this, link, bytes, to_decoder] {
        const auto got = decode(bytes, MessageLimits{});
        if (!got.ok()) findings.push_back(got.error().what);
        const auto found = links.find(link.value);
        if (!got.ok() || found == links.end()) return;
        const FakeLink& at = *found->second;
        (to_decoder ? at.decoder : at.prefiller)->deliver([found, to_decoder, message = *got] {
          const FakeLink& link = *found->second;
          (to_decoder ? link.to_decoder : link.to_prefiller)(message);
        });
      });
    }
  }
  /// Runs until `done` or the end of time; whether it was done.
  bool run_until(const std::function<bool()>& done, int64_t end_us) {
    while (!done()) {
      if (!timeline.step(end_us)) return done();
    }
    return true;
  }

  Timeline timeline;
  Dice dice;
  Shape shape;
  Faults faults;
  std::map<uint64_t, std::shared_ptr<FakeLink>> links;
  std::vector<std::string> findings;
  /// Sees every message that is sent; false loses it.
  std::function<bool(const Message&, bool to_decoder)> tap;
};

}  // namespace tandem::cluster::handoff::testing
