#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/strong_id.h"
#include "io/executor.h"

namespace tandem::io {

using TimerId = StrongId<struct TimerTag, uint64_t>;

/// Functions to be called at their time, on the executor's thread; equal times in the order in
/// which they were asked for. Owner's thread only. What is left at the end is not called.
class Timers final : public Task {
 public:
  explicit Timers(Executor& executor) : executor_(executor) {}
  ~Timers() override { executor_.forget(*this); }
  Timers(const Timers&) = delete;
  Timers& operator=(const Timers&) = delete;

  /// `call` may ask for more timers, cancel any, but not destroy this object.
  TimerId at(Time time, std::function<void()> call);
  TimerId after(std::chrono::nanoseconds delay, std::function<void()> call) {
    return at(executor_.now() + delay, std::move(call));
  }
  /// Ids that were called or cancelled are ignored.
  void cancel(TimerId id);

  Time now() const { return executor_.now(); }
  void run() override;

 private:
  using Key = std::pair<Time, uint64_t>;  // the id breaks ties

  Executor& executor_;
  uint64_t ids_made_ = 0;
  std::map<Key, std::function<void()>> calls_;
  std::map<TimerId, Time> times_;
};

}  // namespace tandem::io
