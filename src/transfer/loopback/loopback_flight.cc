// The steps of what is under way: it begins to land, lands, tells the target, ends.
#include <cstring>

#include "transfer/loopback/loopback_state.h"

namespace tandem::transfer {
namespace {

constexpr size_t kEventsMax = 4096;  // a rail that is not polled makes its writers wait
constexpr Duration kRetryAfter = std::chrono::milliseconds(1);

}  // namespace

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
  } else if (!chance(faults_.message_lost)) {
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
