#pragma once

#include <condition_variable>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "engine/request.h"
#include "server/http/http.h"

namespace tandem::server {

/// Brings the engine's events from its thread to whoever waits for them on the I/O thread: all
/// events of a step in one hand-over. All but on_events() is for the I/O thread.
class EventRouter final : public engine::EventSink {
 public:
  /// Gets the events of its requests.
  class Receiver {
   public:
    virtual ~Receiver() = default;
    /// `choice` is the number given to submit(). May move from the event.
    virtual void on_event(uint32_t choice, engine::Event& event) = 0;
  };

  EventRouter(engine::EngineClient& engine, http::Loop& loop) : engine_(engine), loop_(loop) {}

  /// Gives the request an id and queues it. After ok, events reach `receiver` until one has
  /// `finish` or cancel() is called.
  Result<RequestId> submit(engine::Request request, Receiver& receiver, uint32_t choice);
  /// Ends a request; its receiver hears nothing of it any more.
  void cancel(RequestId id);

  /// Waits until the engine has ended every request, so that it calls this object no more. False
  /// when that takes longer than `timeout_ms`: then this object must not be destroyed.
  bool wait_until_unused(int timeout_ms);

  /// On the engine's thread.
  void on_events(std::span<engine::Event> events) override;

 private:
  struct Entry {
    Receiver* receiver;
    uint32_t choice;
  };
  struct Delivery;
  void deliver();

  engine::EngineClient& engine_;
  http::Loop& loop_;
  std::unordered_map<RequestId, Entry> entries_;
  std::vector<engine::Event> delivering_;
  uint64_t ids_made_ = 0;

  std::mutex mutex_;  // guards what follows; held for moves only
  std::condition_variable unused_;
  std::vector<engine::Event> inbox_;
  bool delivery_posted_ = false;
  uint64_t requests_in_engine_ = 0;
};

}  // namespace tandem::server
