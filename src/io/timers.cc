#include "io/timers.h"

namespace tandem::io {

TimerId Timers::at(Time time, std::function<void()> call) {
  const TimerId id{++ids_made_};
  const auto made = calls_.emplace(Key{time, id.value}, std::move(call)).first;
  times_.emplace(id, time);
  if (made == calls_.begin()) executor_.wake_at(*this, time);
  return id;
}

void Timers::cancel(TimerId id) {
  const auto found = times_.find(id);
  if (found == times_.end()) return;
  // The alarm may now come for nothing; run() then sets the next one.
  calls_.erase(Key{found->second, id.value});
  times_.erase(found);
}

void Timers::run() {
  // A timer that is asked for during a call waits for the next run, also when it is due at once:
  // others get their turn between the two.
  const uint64_t last_id = ids_made_;
  const Time time = now();
  for (auto next = calls_.begin(); next != calls_.end() && next->first.first <= time;) {
    if (next->first.second > last_id) {
      ++next;
      continue;
    }
    const auto call = std::move(next->second);
    times_.erase(TimerId{next->first.second});
    calls_.erase(next);
    call();
    next = calls_.begin();
  }
  if (!calls_.empty()) executor_.wake_at(*this, calls_.begin()->first.first);
}

}  // namespace tandem::io
