#pragma once

#include <cstdint>

#include "base/result.h"
#include "comm/symmetric_heap.h"

namespace tandem::comm {

/// No rank returns from wait() before every rank has called it; what a rank put before is visible
/// to all after.
///
/// Phases     1 signal every other rank, 2 wait for every other rank
/// Bytes      none; N-1 signals per rank
/// Roof       latency: one signal and one wake-up, whatever N is
/// Reuse      an epoch per call; a rank can be at most one call ahead of another
class Barrier {
 public:
  /// All ranks, at the same place of their allocations.
  static Result<Barrier> create(SymmetricHeap& heap);
  Result<void> wait();

 private:
  Barrier(SymmetricHeap& heap, Flag arrived) : heap_(&heap), arrived_(arrived) {}

  SymmetricHeap* heap_;
  Flag arrived_;  // one per source rank
  uint64_t epoch_ = 0;
};

}  // namespace tandem::comm
