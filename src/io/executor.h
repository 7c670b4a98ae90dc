#pragma once

#include <chrono>

namespace tandem::io {

using Time = std::chrono::steady_clock::time_point;

/// Something with work to do on its owner's thread. It finds out by itself what that is: one run
/// may stand for many wakes, and a run may find nothing.
class Task {
 public:
  virtual ~Task() = default;
  virtual void run() = 0;
};

/// One owner's thread as its parts see it: the clock, and the way back onto the thread. Real over
/// an EventLoop, virtual in tests and in the simulator. Nothing that runs here may block.
///
/// A task is in here from its first wake on until forget(); the executor outlives that.
class Executor {
 public:
  virtual ~Executor() = default;

  virtual Time now() const = 0;
  /// Runs the task soon. Any thread; wakes before the run are one.
  virtual void wake(Task& task) = 0;
  /// Also runs the task at `time`, instead of at the time given before. Owner's thread.
  virtual void wake_at(Task& task, Time time) = 0;
  /// The task is not run again. Owner's thread; nobody may wake it from here on.
  virtual void forget(Task& task) = 0;
};

}  // namespace tandem::io
