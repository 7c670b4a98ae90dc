#pragma once

#include <vector>

#include "base/ids.h"
#include "engine/ports.h"
#include "io/post_box.h"

namespace tandem::cluster {

/// engine::KvReservation with its own lists, so that it can leave the engine's thread.
struct Reservation {
  engine::ImportId import;
  RequestId request;
  std::vector<TokenId> tokens;
  kv::TokenRange range;
  std::vector<PageId> pages;
};

class ReservationEvents {
 public:
  virtual ~ReservationEvents() = default;
  virtual void on_reserved(Reservation reservation) = 0;
  virtual void on_abandoned(engine::ImportId import) = 0;
};

/// Carries what a decode group's engine asks for to the cluster's thread, in order. Made before the
/// engine, which needs it, and before the group, which needs the engine.
class ReservationPort final : public engine::KvSource {
 public:
  /// `box` outlives this.
  explicit ReservationPort(io::PostBox& box) : box_(box) {}
  /// Owner's thread, before the first request; `events` outlives the engine.
  void connect(ReservationEvents& events) { events_ = &events; }

  void reserve(const engine::KvReservation& r) override {
    Reservation copy{r.import,
                     r.request,
                     {r.tokens.begin(), r.tokens.end()},
                     r.range,
                     {r.pages.begin(), r.pages.end()}};
    box_.post([this, copy = std::move(copy)] { events_->on_reserved(copy); });
  }
  void abandon(engine::ImportId import) override {
    box_.post([this, import] { events_->on_abandoned(import); });
  }

 private:
  io::PostBox& box_;
  ReservationEvents* events_ = nullptr;
};

}  // namespace tandem::cluster
