#include "io/event_loop.h"

#include <algorithm>

namespace tandem::io {

void EventLoop::wake(Task& task) {
  const std::lock_guard lock(mutex_);
  queue(task);
  changed_.notify_one();
}

void EventLoop::queue(Task& task) {
  if (std::find(woken_.begin(), woken_.end(), &task) == woken_.end()) woken_.push_back(&task);
}

void EventLoop::wake_at(Task& task, Time time) {
  const std::lock_guard lock(mutex_);
  alarms_[&task] = time;
  changed_.notify_one();
}

void EventLoop::forget(Task& task) {
  const std::lock_guard lock(mutex_);
  std::erase(woken_, &task);
  alarms_.erase(&task);
}

void EventLoop::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_one();
}

void EventLoop::run() {
  while (Task* task = wait_for_task(Time::max())) task->run();
}

bool EventLoop::run_until(const std::function<bool()>& done, Time deadline) {
  while (!done()) {
    Task* task = wait_for_task(deadline);
    if (task == nullptr) return done();
    task->run();
  }
  return true;
}

Task* EventLoop::wait_for_task(Time deadline) {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    const Time time = now();
    // Those that are due queue up behind those that are woken, so that neither kind can keep the
    // other from its turn.
    Time next_alarm = Time::max();
    for (auto alarm = alarms_.begin(); alarm != alarms_.end();) {
      if (alarm->second > time) {
        next_alarm = std::min(next_alarm, alarm->second);
        ++alarm;
        continue;
      }
      queue(*alarm->first);
      alarm = alarms_.erase(alarm);
    }
    if (!woken_.empty()) {
      Task* task = woken_.front();
      woken_.erase(woken_.begin());
      return task;
    }
    if (deadline <= time) return nullptr;
    const Time wake_time = std::min(deadline, next_alarm);
    // A wait until Time::max() would overflow in the library's conversion to another clock.
    if (wake_time == Time::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, wake_time);
    }
  }
  return nullptr;
}

}  // namespace tandem::io
