#include "transfer/loopback/loopback_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace tandem::transfer {
namespace {

// Says that an address is one of ours: any 8 bytes that nothing else begins with.
constexpr uint64_t kAddressMark = 0x6c6f6f706261636b;

}  // namespace

auto LoopbackFabric::State::add_rail(const LoopbackRailOptions& options) -> RailIndex {
  RailState& rail = rails_.emplace_back();
  rail.options = options;
  if (options.has_wait_descriptor) {
    auto [wake, woken] = io::Socket::make_pair().value();
    rail.wake.emplace(std::move(wake));
    rail.woken.emplace(std::move(woken));
  }
  return static_cast<RailIndex>(rails_.size() - 1);
}

std::vector<std::byte> LoopbackFabric::State::address_of(RailIndex index) const {
  const uint64_t words[] = {kAddressMark, index};
  const auto bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}

auto LoopbackFabric::State::rail_of(std::span<const std::byte> address) const
    -> std::optional<RailIndex> {
  uint64_t words[2] = {};
  if (address.size() != sizeof(words)) return std::nullopt;
  std::memcpy(words, address.data(), sizeof(words));
  if (words[0] != kAddressMark || words[1] >= rails_.size()) return std::nullopt;
  return static_cast<RailIndex>(words[1]);
}

void LoopbackFabric::State::set_clogged(RailIndex source, RailIndex target, bool is_clogged) {
  const Link link{source, target};
  if (is_clogged) {
    clogged_.try_emplace(link);
    return;
  }
  const auto waiting = clogged_.extract(link);
  if (waiting.empty()) return;
  for (const Step& step : waiting.mapped()) schedule(step.flight, step.kind, delay());
}

void LoopbackFabric::State::set_cut(RailIndex source, RailIndex target, bool is_cut) {
  if (is_cut) {
    cut_.insert({source, target});
  } else {
    cut_.erase({source, target});
  }
}

uint32_t LoopbackFabric::State::regions_count(RailIndex index) const {
  return static_cast<uint32_t>(std::ranges::count_if(
      rails_[index].regions, [](const auto& entry) { return !entry.second.is_closed; }));
}

Result<Registration> LoopbackFabric::State::add_region(RailIndex index, const MemoryBlock& memory,
                                                       Access access) {
  RailState& rail = rails_[index];
  if (regions_count(index) >= rail.options.regions_max) {
    return make_error(Code::kResourceExhausted,
                      fmt::format("rail {} registers at most {} regions", rail.options.name,
                                  rail.options.regions_max));
  }
  const uint32_t id = regions_made_++;
  Region region{.memory = memory, .access = access};
  if (access == Access::kTarget) {
    region.remote.key = random_();
    if (rail.options.has_virtual_addresses) {
      region.remote.base = reinterpret_cast<uint64_t>(memory.data);
    }
    rail.region_of_key[region.remote.key] = id;
  }
  const RemoteKey remote = region.remote;
  rail.regions.emplace(id, std::move(region));
  return Registration{.id = {id}, .remote = remote};
}

void LoopbackFabric::State::close_region(RailIndex index, RailRegionId id) {
  RailState& rail = rails_[index];
  const auto found = rail.regions.find(id.value);
  TANDEM_CHECK(found != rail.regions.end(), "a region is closed that this rail does not have");
  Region& region = found->second;
  TANDEM_CHECK(!region.is_closed, "a region is closed twice");
  region.is_closed = true;
  region.closed_before_flight = flights_made_;
  if (region.landing_count == 0 || !rail.options.can_fence) {
    report(index, {.kind = RailEvent::Kind::kRegionClosed, .region = id});
  }
}

void LoopbackFabric::State::close_peer(RailIndex index, RailPeerId id) {
  lose_path(index, id, "closed by its owner");
  rails_[index].peers[id.value].is_closed = true;
  report(index, {.kind = RailEvent::Kind::kPeerClosed, .peer = id});
}

void LoopbackFabric::State::kill(RailIndex index) {
  RailState& dead = rails_[index];
  if (dead.is_dead) return;
  dead.is_dead = true;
  constexpr std::string_view reason = "the rail failed";
  RailEvent failed{.kind = RailEvent::Kind::kRailFailed};
  failed.error =
      make_error(Code::kUnavailable, fmt::format("rail {}: {}", dead.options.name, reason));
  report(index, std::move(failed));
  for (RailIndex source = 0; source < rails_.size(); ++source) {
    std::vector<Peer>& peers = rails_[source].peers;
    for (uint32_t peer = 0; peer < peers.size(); ++peer) {
      if (source == index || peers[peer].rail == index) lose_path(source, {peer}, reason);
    }
  }
}

void LoopbackFabric::State::destroy(RailIndex index) {
  kill(index);
  rails_[index].is_destroyed = true;
  rails_[index].events.clear();
}

void LoopbackFabric::State::lose_path(RailIndex index, RailPeerId id, std::string_view reason) {
  Peer& peer = rails_[index].peers[id.value];
  if (peer.is_lost) return;
  peer.is_lost = true;
  std::vector<uint64_t> on_path;
  for (const auto& [flight_id, flight] : flights_) {
    if (flight.source == index && flight.peer == id && !flight.is_ended) {
      on_path.push_back(flight_id);
    }
  }
  for (uint64_t flight_id : on_path) abandon(flight_id, flights_.at(flight_id), reason);
}

/// Ends a post whose path is lost. What had begun goes on landing, what had not may land later.
void LoopbackFabric::State::abandon(uint64_t id, Flight& flight, std::string_view reason) {
  if (flight.stage != Stage::kWaiting) {
    keep_bytes(flight);
    end(flight, RailOutcome::kUnknown, reason);
    return;
  }
  const bool lands_late = flight.write.has_value() && chance(faults_.lands_late);
  const bool is_known = !lands_late && chance(0.5);
  if (lands_late) {
    keep_bytes(flight);
    const auto late = static_cast<uint64_t>(faults_.late_max.count()) + 1;
    schedule(id, StepKind::kBegin, Duration(below(late)));
  }
  end(flight, is_known ? RailOutcome::kNotSent : RailOutcome::kUnknown, reason);
  if (!lands_late) flights_.erase(id);
}

void LoopbackFabric::State::end(Flight& flight, RailOutcome outcome, std::string_view reason) {
  TANDEM_CHECK(!flight.is_ended, "a post ends twice");
  flight.is_ended = true;
  RailState& rail = rails_[flight.source];
  --rail.posts_count;
  RailEvent ended{.token = flight.token, .outcome = outcome};
  if (outcome != RailOutcome::kDelivered) {
    ended.error =
        make_error(Code::kUnavailable,
                   fmt::format("rail {}, {} of {} bytes to {}: {}", rail.options.name,
                               flight.write.has_value() ? "write" : "message",
                               flight.write.has_value() ? flight.write->bytes : flight.bytes.size(),
                               target_of(flight).options.name, reason));
  }
  report(flight.source, std::move(ended));
}

void LoopbackFabric::State::report(RailIndex rail, RailEvent event) {
  RailState& state = rails_[rail];
  if (state.is_destroyed) return;
  state.events.push_back(std::move(event));
  // When the socket is full, it is readable already.
  if (state.wake.has_value()) {
    static_cast<void>(
        state.wake->send(std::array{std::byte{1}}, std::chrono::steady_clock::now()).ok());
  }
}

bool LoopbackFabric::State::chance(double probability) {
  if (probability <= 0) return false;  // no draw, so that a fault that is off changes no other
  return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
}

Duration LoopbackFabric::State::delay() {
  const Duration spread = faults_.delay_max - faults_.delay_min;
  if (spread <= Duration::zero()) return faults_.delay_min;
  return faults_.delay_min + Duration(below(static_cast<uint64_t>(spread.count()) + 1));
}

void LoopbackFabric::State::schedule(uint64_t flight, StepKind kind, Duration after) {
  steps_.push({.at = clock_() + after, .order = steps_made_++, .flight = flight, .kind = kind});
}

Post LoopbackFabric::State::post(RailIndex index, RailPeerId peer_id, const RailWrite* write,
                                 std::span<const std::byte> message, uint64_t token) {
  RailState& rail = rails_[index];
  TANDEM_CHECK(peer_id.value < rail.peers.size(), "a post to a peer that this rail does not have");
  const Peer& peer = rail.peers[peer_id.value];
  TANDEM_CHECK(!peer.is_closed, "a post to a closed peer");
  if (rail.posts_count >= rail.options.limits.posts_max || chance(faults_.full)) {
    return Post::kFull;
  }
  ++rail.posts_count;
  const uint64_t id = flights_made_++;
  Flight& flight = flights_[id];
  flight = {.source = index, .peer = peer_id, .token = token};
  if (write != nullptr) {
    flight.write = *write;
    source_bytes(flight);  // checks the region and the range
  } else {
    flight.bytes.assign(message.begin(), message.end());
    flight.has_own_bytes = true;
  }
  if (peer.is_lost || rail.is_dead) {
    end(flight, RailOutcome::kNotSent, "the path is lost");
    flights_.erase(id);
  } else if (cut_.contains({index, peer.rail}) || chance(faults_.lost)) {
    // Stays without a step until its path is closed.
  } else if (chance(faults_.not_sent)) {
    flight.fate = RailOutcome::kNotSent;
    schedule(id, StepKind::kFail, delay());
  } else if (chance(faults_.unknown)) {
    flight.fate = RailOutcome::kUnknown;
    schedule(id, StepKind::kFail, delay());
  } else {
    schedule(id, StepKind::kBegin, delay());
  }
  return Post::kAccepted;
}

void LoopbackFabric::State::advance() {
  const TimePoint now = clock_();
  while (!steps_.empty() && steps_.top().at <= now) {
    const Step step = steps_.top();
    steps_.pop();
    make_step(step);
  }
}

std::optional<TimePoint> LoopbackFabric::State::next_event() const {
  if (steps_.empty()) return std::nullopt;
  return steps_.top().at;
}

}  // namespace tandem::transfer
