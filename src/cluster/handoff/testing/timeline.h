#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <utility>

namespace tandem::cluster::handoff::testing {

/// Virtual time: what is to happen, in order of time, then of asking for it.
class Timeline {
 public:
  using Action = std::function<void()>;

  int64_t now_us() const { return now_us_; }
  void after(int64_t delay_us, Action action) {
    actions_.emplace(now_us_ + delay_us, std::move(action));
  }
  /// Runs the next action; false when there is none up to `end_us`.
  bool step(int64_t end_us) {
    const auto next = actions_.begin();
    if (next == actions_.end() || next->first > end_us) return false;
    now_us_ = next->first;
    const Action action = std::move(next->second);
    actions_.erase(next);
    action();
    return true;
  }

 private:
  int64_t now_us_ = 0;
  std::multimap<int64_t, Action> actions_;
};

/// Chance, from a seed.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  /// [0, end)
  uint64_t number(uint64_t end) { return random_() % end; }
  int64_t between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(number(static_cast<uint64_t>(most - least + 1)));
  }
  bool permille(uint32_t chance) { return number(1000) < chance; }

 private:
  std::mt19937_64 random_;
};

}  // namespace tandem::cluster::handoff::testing
