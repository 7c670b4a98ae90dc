#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "transfer/libfabric/rail.h"

namespace tandem::transfer {

/// A rail of a test and all that it told. Nothing is expected of how long anything takes.
class RailEnd final : public RailEvents {
 public:
  struct Ended {
    RailOutcome outcome = RailOutcome::kDelivered;
    std::string error;
  };

  explicit RailEnd(const std::string& provider, LibfabricRailOptions options = {}) {
    options.network.provider = provider;
    if (provider == "tcp") options.network.interface = "127.0.0.1";
    auto made = create_libfabric_rail(options);
    if (made.ok()) {
      rail = std::move(*made);
    } else {
      ADD_FAILURE() << made.error().what;
    }
  }

  RailPeerId add(const RailEnd& other) { return rail->add_peer(other.rail->address()).value(); }
  Registration target(std::span<std::byte> memory) {
    return rail->register_memory({memory.data(), memory.size()}, Access::kTarget).value();
  }
  RailRegionId source(std::span<std::byte> memory) {
    return rail->register_memory({memory.data(), memory.size()}, Access::kSource).value().id;
  }
  void poll() { rail->poll(*this, 64); }

  void post_ended(uint64_t token, RailOutcome outcome, const Error* error) override {
    EXPECT_EQ(outcome == RailOutcome::kDelivered, error == nullptr);
    const bool is_first =
        ended.emplace(token, Ended{outcome, error == nullptr ? "" : error->what}).second;
    EXPECT_TRUE(is_first) << "post " << token << " ended twice";
  }
  void immediate_arrived(uint32_t immediate) override { ++immediates[immediate]; }
  void message_arrived(std::span<const std::byte> bytes) override {
    messages.emplace_back(bytes.begin(), bytes.end());
  }
  void region_closed(RailRegionId region) override { closed_regions.push_back(region); }
  void peer_closed(RailPeerId peer) override { closed_peers.push_back(peer); }
  void rail_failed(const Error& error) override { ADD_FAILURE() << error.what; }

  std::unique_ptr<Rail> rail;
  std::map<uint64_t, Ended> ended;
  std::map<uint32_t, int> immediates;
  std::vector<std::vector<std::byte>> messages;
  std::vector<RailRegionId> closed_regions;
  std::vector<RailPeerId> closed_peers;
};

/// Polls all ends until it is so. What never becomes so fails the test, long after any load of the
/// machine could be the reason.
inline bool poll_until(std::initializer_list<RailEnd*> ends, const std::function<bool()>& is_so) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!is_so()) {
    for (RailEnd* end : ends) end->poll();
    std::this_thread::yield();
    if (std::chrono::steady_clock::now() > give_up) return false;
  }
  return true;
}

/// Polls for a while in which nothing is expected to happen.
inline void poll_for(std::initializer_list<RailEnd*> ends, std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    for (RailEnd* each : ends) each->poll();
    std::this_thread::yield();
  }
}

}  // namespace tandem::transfer
