#include "apps/run_requests.h"

#include <chrono>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>

namespace tandem::apps {
namespace {

/// Brings events from the engine's thread to the one that waits for them.
class EventQueue final : public engine::EventSink {
 public:
  void on_events(std::span<engine::Event> events) override {
    // Notified under the lock: once it is free the waiter may destroy this object.
    std::lock_guard lock(mutex_);
    std::move(events.begin(), events.end(), std::back_inserter(events_));
    arrived_.notify_one();
  }
  /// Waits for events, a little while at most.
  std::vector<engine::Event> take() {
    constexpr std::chrono::milliseconds kWait(50);
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, kWait, [&] { return !events_.empty(); });
    return std::exchange(events_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<engine::Event> events_;  // guarded by mutex_
};

}  // namespace

Result<void> run_requests(engine::EngineClient& engine, std::vector<engine::Request> requests,
                          const RequestListener& listener) {
  EventQueue queue;
  std::vector<RequestId> submitted;
  std::optional<Error> failure;
  const auto cancel_all = [&] {
    for (RequestId id : submitted) engine.cancel(id);
  };
  for (engine::Request& request : requests) {
    const RequestId id = request.id;
    const Result<void> accepted = engine.submit(std::move(request), queue);
    if (!accepted.ok()) {
      failure = accepted.error();
      cancel_all();
      break;
    }
    submitted.push_back(id);
  }
  bool cancelled = failure.has_value();
  for (size_t running = submitted.size(); running > 0;) {
    for (engine::Event& event : queue.take()) {
      if (event.error && !failure) failure = event.error;
      if (event.finish) --running;
      listener.on_event(event);
    }
    if (!cancelled && listener.interrupted && listener.interrupted()) {
      cancelled = true;
      cancel_all();
    }
  }
  if (failure) return *failure;
  return {};
}

}  // namespace tandem::apps
