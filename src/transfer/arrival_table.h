#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"

namespace tandem::transfer {

/// Which count an arrival belongs to; on the wire one 32-bit immediate, slot above epoch.
struct Arrival {
  uint16_t slot = 0;
  uint16_t epoch = 0;
  bool operator==(const Arrival&) const = default;
};

constexpr uint32_t immediate_of(Arrival arrival) {
  return static_cast<uint32_t>(arrival.slot) << 16 | arrival.epoch;
}
constexpr Arrival arrival_of(uint32_t immediate) {
  return {static_cast<uint16_t>(immediate >> 16), static_cast<uint16_t>(immediate)};
}

/// Immediates by what became of them. Only `counted` ones had an effect.
struct ArrivalCounts {
  uint64_t counted = 0;
  uint64_t early = 0;    ///< of an epoch that its slot has not reached
  uint64_t late = 0;     ///< of an epoch that its slot has left or fulfilled, cancelled included
  uint64_t unknown = 0;  ///< of a slot that never waited, or that does not exist
};

/// How far a wait is, for a writer that does not know what of its own has arrived.
struct ArrivalState {
  enum class Status : uint8_t {
    kWaiting,
    kComplete,
    kGone,  ///< cancelled, never begun, or the slot waits for another epoch now
  };
  Status status = Status::kGone;
  uint64_t counted = 0;  ///< of kWaiting
  bool operator==(const ArrivalState&) const = default;
};

/// Counts immediates per slot and epoch. A slot waits for one epoch at a time, and the wait ends
/// exactly once: by its last arrival or by cancel(). What comes outside of a wait is counted in
/// counts() and never remembered, so arm a slot before its writers can know of it. Epochs of a slot
/// are compared around their wrap: "before" is up to 32,768 behind.
///
/// Owned by an engine, on its thread.
class ArrivalTable {
 public:
  explicit ArrivalTable(uint32_t slots_count);

  /// Waits for `count` immediates; 0 is complete at once. The slot must not wait already
  /// (kFailedPrecondition) and must exist (kInvalidArgument).
  Result<void> expect(Arrival arrival, uint64_t count, std::function<void()> on_complete);
  /// Ends the wait and drops its count; false when it is not waiting for this epoch (any more).
  bool cancel(Arrival arrival);

  /// Gives back what to call when this immediate was the last one of its wait; else nothing.
  std::function<void()> arrived(uint32_t immediate);
  /// Likewise for a wait of 0, which is complete at once; one after the other until there is none.
  std::function<void()> take_complete();

  uint32_t slots_count() const { return static_cast<uint32_t>(slots_.size()); }
  uint32_t waiting_count() const { return waiting_count_; }
  /// Immediates still missing; 0 when it is not waiting.
  uint64_t missing(Arrival arrival) const;
  ArrivalState state(Arrival arrival) const;
  const ArrivalCounts& counts() const { return counts_; }

 private:
  struct Slot {
    bool was_used = false;
    bool is_waiting = false;
    bool is_complete = false;
    uint16_t epoch = 0;  // of this wait, or of the last one
    uint64_t missing = 0;
    uint64_t counted = 0;
    std::function<void()> on_complete;
  };
  const Slot* waiting_slot(Arrival arrival) const;
  std::function<void()> end_wait(Slot& slot, bool is_complete);

  std::vector<Slot> slots_;
  std::vector<uint16_t> complete_;  // slots whose wait was for 0
  uint32_t waiting_count_ = 0;
  ArrivalCounts counts_;
};

}  // namespace tandem::transfer
