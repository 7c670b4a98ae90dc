#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <utility>

#include "io/executor.h"

namespace tandem::io {

/// An executor whose time passes only when nothing is left to do now: for tests and the simulator.
/// Tasks run one after another, in an order that depends on the calls alone. One thread.
class VirtualExecutor final : public Executor {
 public:
  Time now() const override { return now_; }
  void wake(Task& task) override;
  void wake_at(Task& task, Time time) override;
  void forget(Task& task) override;

  /// Runs the next task, at its time; false when there is none up to `time_max`.
  bool step(Time time_max = Time::max());
  /// Runs all that is due in the meantime; then it is `duration` later.
  void run_for(std::chrono::nanoseconds duration);

 private:
  using Key = std::pair<Time, uint64_t>;  // the number of the wish breaks ties

  /// Sets one of a task's two wishes: to run now, or at a time.
  void wish(std::map<Task*, Key>& keys, Task& task, Time time);
  void drop(std::map<Task*, Key>& keys, Task& task);

  Time now_{std::chrono::seconds(1)};  ///< not 0, which may mean "never" somewhere
  uint64_t wishes_made_ = 0;
  std::map<Key, Task*> queue_;
  std::map<Task*, Key> woken_;
  std::map<Task*, Key> alarms_;
};

}  // namespace tandem::io
