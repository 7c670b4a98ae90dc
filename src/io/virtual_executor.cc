#include "io/virtual_executor.h"

#include <algorithm>

namespace tandem::io {

void VirtualExecutor::wake(Task& task) {
  if (!woken_.contains(&task)) wish(woken_, task, now_);
}

void VirtualExecutor::wake_at(Task& task, Time time) {
  drop(alarms_, task);
  wish(alarms_, task, std::max(time, now_));
}

void VirtualExecutor::forget(Task& task) {
  drop(woken_, task);
  drop(alarms_, task);
}

bool VirtualExecutor::step(Time time_max) {
  if (queue_.empty()) return false;
  const auto [key, task] = *queue_.begin();
  if (key.first > time_max) return false;
  now_ = key.first;
  const auto woken = woken_.find(task);
  drop(woken != woken_.end() && woken->second == key ? woken_ : alarms_, *task);
  task->run();
  return true;
}

void VirtualExecutor::run_for(std::chrono::nanoseconds duration) {
  const Time end = now_ + duration;
  while (step(end)) {
  }
  now_ = end;
}

void VirtualExecutor::wish(std::map<Task*, Key>& keys, Task& task, Time time) {
  const Key key{time, ++wishes_made_};
  queue_.emplace(key, &task);
  keys.emplace(&task, key);
}

void VirtualExecutor::drop(std::map<Task*, Key>& keys, Task& task) {
  const auto found = keys.find(&task);
  if (found == keys.end()) return;
  queue_.erase(found->second);
  keys.erase(found);
}

}  // namespace tandem::io
