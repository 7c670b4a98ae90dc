#pragma once

#include <functional>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "io/post_box.h"

namespace tandem::cluster {

/// Carries an engine's events to the cluster's thread, in order. Made before the engines, which it
/// outlives, as they tell the ends of what lives when they end.
class EventPort final : public engine::EventSink {
 public:
  using Receive = std::function<void(std::vector<engine::Event>)>;
  /// `box` outlives this.
  explicit EventPort(io::PostBox& box) : box_(box) {}
  /// Owner's thread, before the first request.
  void connect(Receive receive) { receive_ = std::move(receive); }

  void on_events(std::span<engine::Event> events) override {
    std::vector<engine::Event> moved(std::move_iterator(events.begin()),
                                     std::move_iterator(events.end()));
    box_.post([this, moved = std::move(moved)]() mutable { receive_(std::move(moved)); });
  }

 private:
  io::PostBox& box_;
  Receive receive_;
};

}  // namespace tandem::cluster
