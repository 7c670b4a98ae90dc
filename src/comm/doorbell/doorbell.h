#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "comm/symmetric_heap.h"

namespace tandem::comm {

/// How a group that has nothing to do sleeps without using a core, and how one new request on any
/// rank wakes all of it. The rank's thread: arm(), look into its inbox, then wait() or ring(). A
/// producer, on any thread: put into the inbox, then ring(). Both orders are sequentially
/// consistent, so either the rank sees the request or the producer sees that the bell is armed.
///
/// Phases     ring: signal every rank, this one included; wait: one wait
/// Bytes      none; N signals per ring
/// Roof       latency: one wake-up
/// Reuse      every rank arms with the same number, one up per sleep, and all ringers of a sleep
///            signal that number, so a flag with many writers is still an epoch. A ring that comes
///            late, after the group woke, signals a number that has passed, and is ignored.
class Doorbell {
 public:
  /// All ranks, at the same place of their allocations.
  static Result<Doorbell> create(SymmetricHeap& heap);

  /// Every rank of the group, before each wait.
  void arm();
  /// Until somebody rings. No limit and no log line: idling is normal. kUnavailable on a death.
  Result<void> wait();
  /// Thread-safe. Wakes the group if it sleeps or is about to; otherwise does nothing.
  void ring();

 private:
  Doorbell(SymmetricHeap& heap, Flag bell)
      : heap_(&heap), bell_(bell), armed_(std::make_unique<std::atomic<uint64_t>>(0)) {}

  SymmetricHeap* heap_;
  Flag bell_;
  std::unique_ptr<std::atomic<uint64_t>> armed_;  // number of the sleep to come; on the heap: moves
};

}  // namespace tandem::comm
