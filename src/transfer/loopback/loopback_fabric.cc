#include "transfer/loopback/loopback_fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "transfer/loopback/loopback_state.h"

namespace tandem::transfer {

/// A rail of a LoopbackFabric: its place in the shared state, behind the lock.
class LoopbackRail final : public Rail {
 public:
  using State = LoopbackFabric::State;

  LoopbackRail(State& state, const LoopbackRailOptions& options)
      : state_(state), options_(options), index_(state.add_rail(options)) {}
  ~LoopbackRail() override {
    const std::lock_guard lock(state_.mutex);
    state_.destroy(index_);
  }

  State::RailIndex index() const { return index_; }
  const std::string& name() const override { return options_.name; }
  const RailLimits& limits() const override { return options_.limits; }
  bool can_fence() const override { return options_.can_fence; }
  std::vector<std::byte> address() const override { return state_.address_of(index_); }

  Result<RailPeerId> add_peer(std::span<const std::byte> address) override {
    const std::lock_guard lock(state_.mutex);
    const auto target = state_.rail_of(address);
    if (!target.has_value()) {
      return make_error(Code::kInvalidArgument,
                        fmt::format("rail {}: these {} bytes are no address of the loopback",
                                    options_.name, address.size()));
    }
    auto& peers = state_.rail(index_).peers;
    peers.push_back({.rail = *target});
    return RailPeerId{static_cast<uint32_t>(peers.size() - 1)};
  }

  void close_peer(RailPeerId peer) override {
    const std::lock_guard lock(state_.mutex);
    state_.close_peer(index_, peer);
  }

  Result<Registration> register_memory(const MemoryBlock& memory, Access access) override {
    const std::lock_guard lock(state_.mutex);
    return state_.add_region(index_, memory, access);
  }

  void close_region(RailRegionId region) override {
    const std::lock_guard lock(state_.mutex);
    state_.close_region(index_, region);
  }

  Post post_write(const RailWrite& write) override {
    const std::lock_guard lock(state_.mutex);
    return state_.post(index_, write.peer, &write, {}, write.token);
  }

  Post post_message(RailPeerId peer, std::span<const std::byte> bytes, uint64_t token) override {
    const std::lock_guard lock(state_.mutex);
    return state_.post(index_, peer, nullptr, bytes, token);
  }

  uint32_t poll(RailEvents& events, uint32_t events_max) override {
    std::vector<RailEvent> due;
    {
      const std::lock_guard lock(state_.mutex);
      state_.advance();
      State::RailState& rail = state_.rail(index_);
      std::array<std::byte, 64> ignored;
      if (rail.woken.has_value()) static_cast<void>(rail.woken->receive_some(ignored).ok());
      auto& waiting = rail.events;
      const size_t count = std::min<size_t>(events_max, waiting.size());
      const auto end = waiting.begin() + static_cast<std::ptrdiff_t>(count);
      due.assign(std::move_iterator(waiting.begin()), std::move_iterator(end));
      waiting.erase(waiting.begin(), end);
    }
    for (const RailEvent& event : due) tell(event, events);
    return static_cast<uint32_t>(due.size());
  }

  int wait_descriptor() const override {
    const std::lock_guard lock(state_.mutex);
    const auto& woken = state_.rail(index_).woken;
    return woken.has_value() ? woken->descriptor() : -1;
  }
  bool may_sleep() override {
    const std::lock_guard lock(state_.mutex);
    state_.advance();
    return state_.rail(index_).events.empty();
  }

 private:
  State& state_;
  const LoopbackRailOptions options_;
  const State::RailIndex index_;
};

namespace {

uint32_t index_of(const Rail& rail) {
  return static_cast<const LoopbackRail&>(rail).index();
}

}  // namespace

LoopbackFabric::LoopbackFabric(uint64_t seed, Clock clock)
    : state_(std::make_unique<State>(seed, std::move(clock))) {}
LoopbackFabric::~LoopbackFabric() = default;

std::unique_ptr<Rail> LoopbackFabric::make_rail(const LoopbackRailOptions& options) {
  const std::lock_guard lock(state_->mutex);
  return std::make_unique<LoopbackRail>(*state_, options);
}

void LoopbackFabric::set_faults(const LoopbackFaults& faults) {
  const std::lock_guard lock(state_->mutex);
  state_->set_faults(faults);
}

void LoopbackFabric::fail_rail(const Rail& rail) {
  const std::lock_guard lock(state_->mutex);
  state_->kill(index_of(rail));
}

void LoopbackFabric::set_clogged(const Rail& source, const Rail& target, bool is_clogged) {
  const std::lock_guard lock(state_->mutex);
  state_->set_clogged(index_of(source), index_of(target), is_clogged);
}

void LoopbackFabric::set_cut(const Rail& source, const Rail& target, bool is_cut) {
  const std::lock_guard lock(state_->mutex);
  state_->set_cut(index_of(source), index_of(target), is_cut);
}

uint32_t LoopbackFabric::regions_count(const Rail& rail) const {
  const std::lock_guard lock(state_->mutex);
  return state_->regions_count(index_of(rail));
}

std::optional<TimePoint> LoopbackFabric::next_event() const {
  const std::lock_guard lock(state_->mutex);
  return state_->next_event();
}

}  // namespace tandem::transfer
