#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <queue>
#include <random>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/socket.h"
#include "transfer/loopback/loopback_fabric.h"
#include "transfer/rail_event.h"

namespace tandem::transfer {

/// All that the rails of one fabric share. Every function is called with `mutex` held.
class LoopbackFabric::State {
 public:
  using RailIndex = uint32_t;

  struct Region {
    MemoryBlock memory;
    Access access = Access::kSource;
    RemoteKey remote;
    bool is_closed = false;
    uint64_t closed_before_flight = 0;  // without fencing, what was posted earlier still lands
    uint32_t landing_count = 0;         // writes that have begun and not finished
  };
  struct Peer {
    RailIndex rail = 0;
    bool is_lost = false;
    bool is_closed = false;
  };
  struct RailState {
    LoopbackRailOptions options;
    bool is_dead = false;
    bool is_destroyed = false;  // nobody polls it any more
    std::unordered_map<uint32_t, Region> regions;
    std::unordered_map<uint64_t, uint32_t> region_of_key;
    std::vector<Peer> peers;
    std::deque<RailEvent> events;
    std::optional<io::Socket> wake;   // written to when there is an event, if they are wanted
    std::optional<io::Socket> woken;  // and readable then
    uint32_t posts_count = 0;
  };

  State(uint64_t seed, Clock clock) : clock_(std::move(clock)), random_(seed) {}

  RailIndex add_rail(const LoopbackRailOptions& options);
  RailState& rail(RailIndex index) { return rails_[index]; }
  std::vector<std::byte> address_of(RailIndex index) const;
  std::optional<RailIndex> rail_of(std::span<const std::byte> address) const;
  void set_faults(const LoopbackFaults& faults) { faults_ = faults; }
  void set_clogged(RailIndex source, RailIndex target, bool is_clogged);
  void set_cut(RailIndex source, RailIndex target, bool is_cut);

  Result<Registration> add_region(RailIndex rail, const MemoryBlock& memory, Access access);
  uint32_t regions_count(RailIndex rail) const;
  void close_region(RailIndex rail, RailRegionId region);
  void close_peer(RailIndex rail, RailPeerId peer);
  void kill(RailIndex rail);
  void destroy(RailIndex rail);

  Post post(RailIndex rail, RailPeerId peer, const RailWrite* write,
            std::span<const std::byte> message, uint64_t token);
  /// Makes all steps that are due.
  void advance();
  std::optional<TimePoint> next_event() const;

  mutable std::mutex mutex;

 private:
  enum class Stage { kWaiting, kLanding, kLanded };
  enum class StepKind { kBegin, kFinish, kEnd, kFail };

  /// A write or message under way. It stays after its end while it may still land.
  struct Flight {
    RailIndex source = 0;
    RailPeerId peer;
    std::optional<RailWrite> write;
    std::vector<std::byte> bytes;  // of a message; of a write once its source may change
    bool has_own_bytes = false;
    uint64_t token = 0;
    Stage stage = Stage::kWaiting;
    bool is_ended = false;  // its end was reported
    RailOutcome fate = RailOutcome::kDelivered;
  };
  struct Step {
    TimePoint at;
    uint64_t order = 0;
    uint64_t flight = 0;
    StepKind kind = StepKind::kBegin;
    bool operator>(const Step& other) const {
      return std::pair(at, order) > std::pair(other.at, other.order);
    }
  };
  using Link = std::pair<RailIndex, RailIndex>;

  bool chance(double probability);
  uint64_t below(uint64_t limit) { return random_() % limit; }
  Duration delay();
  void schedule(uint64_t flight, StepKind kind, Duration after);
  void make_step(const Step& step);
  void begin(uint64_t id, Flight& flight);
  void finish(uint64_t id, Flight& flight);
  void fail(uint64_t id, Flight& flight);
  void lose_path(RailIndex rail, RailPeerId peer, std::string_view reason);
  void abandon(uint64_t id, Flight& flight, std::string_view reason);
  void end(Flight& flight, RailOutcome outcome, std::string_view reason);
  void report(RailIndex rail, RailEvent event);

  Peer& peer_of(const Flight& flight) { return rails_[flight.source].peers[flight.peer.value]; }
  RailState& target_of(const Flight& flight) { return rails_[peer_of(flight).rail]; }
  /// The region that a write may land in now; null: it is rejected.
  Region* target_region(uint64_t id, const Flight& flight);
  std::span<const std::byte> source_bytes(const Flight& flight);
  void keep_bytes(Flight& flight);
  void land(Region& region, const Flight& flight, uint64_t first, uint64_t end);
  void landed(uint32_t region_id, const Flight& flight, Region& region);
  void tell_target(const Flight& flight);

  Clock clock_;
  std::mt19937_64 random_;
  LoopbackFaults faults_;
  std::deque<RailState> rails_;
  std::map<uint64_t, Flight> flights_;
  std::priority_queue<Step, std::vector<Step>, std::greater<>> steps_;
  std::map<Link, std::vector<Step>> clogged_;  // and what waits for the end of it
  std::set<Link> cut_;
  uint64_t flights_made_ = 0;
  uint64_t steps_made_ = 0;
  uint32_t regions_made_ = 0;
};

}  // namespace tandem::transfer
