#pragma once

#include <deque>
#include <string>
#include <vector>

#include "transfer/rail.h"

namespace tandem::transfer {

/// A rail that moves nothing and says that all is delivered at the next poll: what an engine costs
/// by itself.
class InstantRail : public Rail {
 public:
  const std::string& name() const override { return name_; }
  const RailLimits& limits() const override { return limits_; }
  bool can_fence() const override { return true; }
  std::vector<std::byte> address() const override { return std::vector<std::byte>(8); }
  Result<RailPeerId> add_peer(std::span<const std::byte>) override { return RailPeerId{peers_++}; }
  void close_peer(RailPeerId) override {}
  Result<Registration> register_memory(const MemoryBlock&, Access) override {
    ++regions_;
    return Registration{.id = {regions_}, .remote = {.key = regions_}};
  }
  void close_region(RailRegionId) override {}
  Post post_write(const RailWrite& write) override { return post(write.token); }
  Post post_message(RailPeerId, std::span<const std::byte>, uint64_t token) override {
    return post(token);
  }
  uint32_t poll(RailEvents& events, uint32_t events_max) override {
    uint32_t count = 0;
    for (; count < events_max && !posted_.empty(); ++count) {
      events.post_ended(posted_.front(), RailOutcome::kDelivered, nullptr);
      posted_.pop_front();
    }
    return count;
  }
  int wait_descriptor() const override { return -1; }
  bool may_sleep() override { return false; }

 private:
  Post post(uint64_t token) {
    if (posted_.size() >= limits_.posts_max) return Post::kFull;
    posted_.push_back(token);
    return Post::kAccepted;
  }

  const std::string name_ = "instant";
  const RailLimits limits_{.write_bytes_max = 1 << 30, .message_bytes_max = 4096, .posts_max = 256};
  std::deque<uint64_t> posted_;
  uint32_t peers_ = 0;
  uint32_t regions_ = 0;
};

}  // namespace tandem::transfer
