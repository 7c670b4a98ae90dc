#pragma once

#include <functional>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "io/post_box.h"

namespace tandem::cluster {

/// Carries an engine's events to the cluster's thread, in order.
class EventPort final : public engine::EventSink {
 public:
  using Receive = std::function<void(std::vector<engine::Event>)>;
  /// `box` outlives this, and this the engine.
  EventPort(io::PostBox& box, Receive receive) : box_(box), receive_(std::move(receive)) {}

  void on_events(std::span<engine::Event> events) override {
    std::vector<engine::Event> moved(std::move_iterator(events.begin()),
                                     std::move_iterator(events.end()));
    box_.post([this, moved = std::move(moved)]() mutable { receive_(std::move(moved)); });
  }

 private:
  io::PostBox& box_;
  const Receive receive_;
};

}  // namespace tandem::cluster
