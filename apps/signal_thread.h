#pragma once

#include <functional>
#include <thread>

namespace tandem::apps {

/// Waits for SIGINT and SIGTERM on a thread "signals", so that what they call may lock. Made before
/// all other threads, which inherit that they do not get them.
class SignalThread {
 public:
  /// `on_signal` is called on the thread with how many there were, this one included.
  explicit SignalThread(std::function<void(int count)> on_signal);
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  std::thread thread_;
};

}  // namespace tandem::apps
