#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "io/open_file.h"
#include "transfer/rail.h"
#include "transfer/time_point.h"

namespace tandem::bench {

/// A rail whose writes travel over a wire of so many bytes per second, one behind the other: each
/// is held back for its time on the wire and then posted to the rail within. Messages and
/// immediates without bytes take no time. For measurements of what a slow network costs.
class ThrottledRail final : public transfer::Rail {
 public:
  struct Options {
    /// Asked at each write; 0: nothing is held back from then on.
    std::function<double()> bytes_per_second;
    /// Hears of every write's bytes when they have been on the wire.
    std::function<void(uint64_t bytes)> on_sent = [](uint64_t) {};
    transfer::Clock clock;
  };
  static Result<std::unique_ptr<ThrottledRail>> create(std::unique_ptr<transfer::Rail> within,
                                                       Options options);

  const std::string& name() const override { return within_->name(); }
  const transfer::RailLimits& limits() const override { return within_->limits(); }
  bool can_fence() const override { return within_->can_fence(); }
  std::vector<std::byte> address() const override { return within_->address(); }
  Result<transfer::RailPeerId> add_peer(std::span<const std::byte> address) override {
    return within_->add_peer(address);
  }
  /// What is on the wire to this peer is not sent.
  void close_peer(transfer::RailPeerId peer) override;
  Result<transfer::Registration> register_memory(const transfer::MemoryBlock& memory,
                                                 transfer::Access access) override {
    return within_->register_memory(memory, access);
  }
  void set_writer(transfer::RailRegionId region, transfer::RailPeerId peer) override {
    within_->set_writer(region, peer);
  }
  void close_region(transfer::RailRegionId region) override { within_->close_region(region); }
  transfer::Post post_write(const transfer::RailWrite& write) override;
  transfer::Post post_message(transfer::RailPeerId peer, std::span<const std::byte> bytes,
                              uint64_t token) override {
    return within_->post_message(peer, bytes, token);
  }
  uint32_t poll(transfer::RailEvents& events, uint32_t events_max) override;
  /// Of both: the rail within and the wire's next arrival.
  int wait_descriptor() const override;
  bool may_sleep() override;

 private:
  struct OnWire {
    transfer::RailWrite write;
    transfer::TimePoint arrives;
  };
  ThrottledRail(std::unique_ptr<transfer::Rail> within, Options options, io::FileDescriptor timer,
                io::FileDescriptor both);
  /// Posts what has arrived to the rail within, as far as that takes it.
  void post_arrived();

  std::unique_ptr<transfer::Rail> within_;
  Options options_;
  io::FileDescriptor timer_;
  io::FileDescriptor both_;  // an epoll of the timer and the rail within
  std::deque<OnWire> wire_;
  std::deque<uint64_t> unsent_;  // tokens whose peer was closed
  transfer::TimePoint free_at_{};
};

}  // namespace tandem::bench
