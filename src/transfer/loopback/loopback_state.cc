#include "transfer/loopback/loopback_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tandem::transfer {
namespace {

// Says that an address is one of ours: any 8 bytes that nothing else begins with.
constexpr uint64_t kAddressMark = 0x6c6f6f706261636b;
constexpr size_t kEventsMax = 4096;  // a rail that is not polled makes its writers wait
constexpr Duration kRetryAfter = std::chrono::milliseconds(1);

}  // namespace

auto LoopbackFabric::State::add_rail(const LoopbackRailOptions& options) -> RailIndex {
  rails_.push_back({.options = options});
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
  if (!rails_[rail].is_destroyed) rails_[rail].events.push_back(std::move(event));
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

void LoopbackFabric::State::make_step(const Step& step) {
  const auto found = flights_.find(step.flight);
  if (found == flights_.end()) return;  // it ended otherwise meanwhile
  Flight& flight = found->second;
  const auto clog = clogged_.find({flight.source, peer_of(flight).rail});
  // What has begun to land is in the target's hands: a fence waits for it, but not for the link.
  if (clog != clogged_.end() && step.kind != StepKind::kFinish) {
    clog->second.push_back(step);
    return;
  }
  switch (step.kind) {
    case StepKind::kBegin:
      return begin(step.flight, flight);
    case StepKind::kFinish:
      return finish(step.flight, flight);
    case StepKind::kFail:
      if (!flight.is_ended) fail(step.flight, flight);
      return;
    case StepKind::kEnd:
      if (!flight.is_ended) end(flight, flight.fate, "the target refused its key");
      flights_.erase(step.flight);
  }
}

void LoopbackFabric::State::begin(uint64_t id, Flight& flight) {
  RailState& target = target_of(flight);
  if (flight.stage != Stage::kWaiting) return;  // it was to land late, and did in time
  if (target.is_dead) {
    if (flight.is_ended) {
      flights_.erase(id);
    } else {
      lose_path(flight.source, flight.peer, "the target's rail is gone");
    }
    return;
  }
  if (target.events.size() >= kEventsMax) return schedule(id, StepKind::kBegin, kRetryAfter);
  if (flight.write.has_value()) {
    Region* region = target_region(id, flight);
    if (region == nullptr) {
      flight.fate = RailOutcome::kRejected;
      return schedule(id, StepKind::kEnd, delay());
    }
    ++region->landing_count;
    land(*region, flight, 0, flight.write->bytes / 2);
  }
  flight.stage = Stage::kLanding;
  schedule(id, StepKind::kFinish, delay());
}

void LoopbackFabric::State::finish(uint64_t id, Flight& flight) {
  RailState& target = target_of(flight);
  flight.stage = Stage::kLanded;
  if (flight.write.has_value()) {
    const RailWrite& write = *flight.write;
    const uint32_t region_id = target.region_of_key.at(write.target.key);
    Region& region = target.regions.at(region_id);
    if (!target.is_dead) {
      land(region, flight, write.bytes / 2, write.bytes);
      if (chance(faults_.duplicate)) land(region, flight, 0, write.bytes);
      if (write.bytes > 0 && chance(faults_.damaged)) {
        auto* first = static_cast<std::byte*>(region.memory.data) +
                      (write.target.base + write.target_offset - region.remote.base);
        first[below(write.bytes)] ^= std::byte{1};
      }
      tell_target(flight);
    }
    landed(region_id, flight, region);
  } else {
    tell_target(flight);
  }
  schedule(id, StepKind::kEnd, delay());
}

/// The post is what its path breaks on.
void LoopbackFabric::State::fail(uint64_t id, Flight& flight) {
  const RailIndex source = flight.source;
  const RailPeerId peer = flight.peer;
  if (flight.fate == RailOutcome::kUnknown && flight.write.has_value()) {
    Region* region = target_region(id, flight);
    if (region != nullptr && !target_of(flight).is_dead) {
      const uint64_t bytes = flight.write->bytes;
      const uint64_t count = chance(0.5) ? bytes : below(bytes + 1);
      land(*region, flight, 0, count);
      if (count == bytes && chance(0.5)) tell_target(flight);
    }
  }
  end(flight, flight.fate, "the connection broke");
  flights_.erase(id);
  lose_path(source, peer, "the connection broke");
}

LoopbackFabric::State::Region* LoopbackFabric::State::target_region(uint64_t id,
                                                                    const Flight& flight) {
  RailState& target = target_of(flight);
  const RailWrite& write = *flight.write;
  const auto found = target.region_of_key.find(write.target.key);
  if (found == target.region_of_key.end()) return nullptr;
  Region& region = target.regions.at(found->second);
  const bool was_posted_before = id < region.closed_before_flight;
  if (region.is_closed && (target.options.can_fence || !was_posted_before)) return nullptr;
  const uint64_t first = write.target.base + write.target_offset - region.remote.base;
  if (first > region.memory.bytes || write.bytes > region.memory.bytes - first) return nullptr;
  return &region;
}

std::span<const std::byte> LoopbackFabric::State::source_bytes(const Flight& flight) {
  if (flight.has_own_bytes || flight.write->bytes == 0) return flight.bytes;
  const RailWrite& write = *flight.write;
  const auto& regions = rails_[flight.source].regions;
  const auto found = regions.find(write.source.value);
  TANDEM_CHECK(found != regions.end() && !found->second.is_closed, "a write from a closed region");
  const MemoryBlock& memory = found->second.memory;
  TANDEM_CHECK(
      write.source_offset <= memory.bytes && write.bytes <= memory.bytes - write.source_offset,
      "a write from outside of its region");
  return {static_cast<const std::byte*>(memory.data) + write.source_offset, write.bytes};
}

void LoopbackFabric::State::keep_bytes(Flight& flight) {
  if (flight.has_own_bytes) return;
  const std::span<const std::byte> bytes = source_bytes(flight);
  flight.bytes.assign(bytes.begin(), bytes.end());
  flight.has_own_bytes = true;
}

void LoopbackFabric::State::land(Region& region, const Flight& flight, uint64_t first,
                                 uint64_t end) {
  if (first == end) return;
  const RailWrite& write = *flight.write;
  const uint64_t offset = write.target.base + write.target_offset - region.remote.base;
  std::memcpy(static_cast<std::byte*>(region.memory.data) + offset + first,
              source_bytes(flight).data() + first, end - first);
}

void LoopbackFabric::State::landed(uint32_t region_id, const Flight& flight, Region& region) {
  --region.landing_count;
  if (region.is_closed && region.landing_count == 0 && target_of(flight).options.can_fence) {
    report(peer_of(flight).rail, {.kind = RailEvent::Kind::kRegionClosed, .region = {region_id}});
  }
}

void LoopbackFabric::State::tell_target(const Flight& flight) {
  const RailIndex target = peer_of(flight).rail;
  RailEvent event;
  if (!flight.write.has_value()) {
    event.kind = RailEvent::Kind::kMessage;
    event.message = flight.bytes;
    report(target, std::move(event));
  } else if (flight.write->immediate.has_value()) {
    event.kind = RailEvent::Kind::kImmediate;
    event.immediate = *flight.write->immediate;
    if (chance(faults_.immediate_repeated)) report(target, event);
    report(target, std::move(event));
  }
}

}  // namespace tandem::transfer
