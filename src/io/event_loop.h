#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "io/executor.h"

namespace tandem::io {

/// The executor of a thread that has nothing else to do: it sleeps until a task is woken or due.
/// Whoever calls run() or run_until() is the owner's thread.
class EventLoop final : public Executor {
 public:
  Time now() const override { return std::chrono::steady_clock::now(); }
  void wake(Task& task) override;
  void wake_at(Task& task, Time time) override;
  void forget(Task& task) override;

  /// Runs tasks until stop().
  void run();
  /// Runs tasks until `done()`, which is asked after each; false when the deadline came first.
  bool run_until(const std::function<bool()>& done, Time deadline);
  /// Ends run() after the task that it is at. Any thread.
  void stop();

 private:
  /// Puts it among the woken, once. Under mutex_.
  void queue(Task& task);
  /// The next task to run, once there is one; none at the deadline or after stop().
  Task* wait_for_task(Time deadline);

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_. Few tasks, so lists are searched.
  std::vector<Task*> woken_;  ///< first woken first, each once
  std::map<Task*, Time> alarms_;
  bool stopped_ = false;
};

}  // namespace tandem::io
