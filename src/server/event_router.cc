#include "server/event_router.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tandem::server {

struct EventRouter::Delivery final : http::Task {
  explicit Delivery(EventRouter& router) : router(router) {}
  void run() override { router.deliver(); }
  EventRouter& router;
};

Result<RequestId> EventRouter::submit(engine::Request request, Receiver& receiver,
                                      uint32_t choice) {
  const RequestId id{++ids_made_};
  request.id = id;
  // Before the engine knows of it, because its first event may come at once.
  entries_.emplace(id, Entry{.receiver = &receiver, .choice = choice});
  {
    const std::lock_guard lock(mutex_);
    ++requests_in_engine_;
  }
  const Result<void> queued = engine_.submit(std::move(request), *this);
  if (queued.ok()) return id;
  entries_.erase(id);
  const std::lock_guard lock(mutex_);
  --requests_in_engine_;
  return queued.error();
}

void EventRouter::cancel(RequestId id) {
  if (entries_.erase(id) > 0) engine_.cancel(id);
}

bool EventRouter::wait_until_unused(int timeout_ms) {
  std::unique_lock lock(mutex_);
  return unused_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                          [this] { return requests_in_engine_ == 0; });
}

void EventRouter::on_events(std::span<engine::Event> events) {
  bool post = false;
  {
    const std::lock_guard lock(mutex_);
    for (engine::Event& event : events) inbox_.push_back(std::move(event));
    post = !delivery_posted_ && !events.empty();
    delivery_posted_ = delivery_posted_ || post;
  }
  if (post) loop_.post(std::make_unique<Delivery>(*this));
  // Last, because afterwards this object may be destroyed.
  const auto finished = std::count_if(events.begin(), events.end(), [](const engine::Event& event) {
    return event.finish.has_value();
  });
  if (finished == 0) return;
  const std::lock_guard lock(mutex_);
  requests_in_engine_ -= static_cast<uint64_t>(finished);
  if (requests_in_engine_ == 0) unused_.notify_all();
}

void EventRouter::deliver() {
  {
    const std::lock_guard lock(mutex_);
    std::swap(inbox_, delivering_);
    delivery_posted_ = false;
  }
  for (engine::Event& event : delivering_) {
    const auto found = entries_.find(event.id);
    if (found == entries_.end()) continue;  // cancelled meanwhile
    const Entry entry = found->second;
    if (event.finish) entries_.erase(found);
    entry.receiver->on_event(entry.choice, event);
  }
  delivering_.clear();
}

}  // namespace tandem::server
