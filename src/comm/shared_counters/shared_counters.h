#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "comm/symmetric_heap.h"

namespace tandem::comm {

/// Counters of every rank that rank 0 may look at whenever it likes: how a rank that serves no
/// requests shows what it does. A counter only grows, so it is an epoch, and a signal publishes it
/// whole: the reader needs no lock and no copy, and waits for nobody.
///
/// Phases     publish: signal rank 0 every counter that has grown
/// Bytes      none; at most one signal per counter and rank
/// Roof       latency, and nobody waits for it
/// Reuse      a counter has one writer and is never written back
class SharedCounters {
 public:
  /// All ranks, at the same place of their allocations.
  static Result<SharedCounters> create(SymmetricHeap& heap, int counters_count);

  /// What this rank has counted since the start. On its thread; allocates nothing.
  void publish(std::span<const uint64_t> counters);
  /// On rank 0, from any thread: what a rank has published last. Counters of one call may be
  /// seen at different moments.
  uint64_t read(int rank, int counter) const;

 private:
  SharedCounters(SymmetricHeap& heap, int counters_count, Flag counters)
      : heap_(&heap), published_(static_cast<size_t>(counters_count)), counters_(counters) {}
  Flag flag_of(int rank, size_t counter) const;

  SymmetricHeap* heap_;
  std::vector<uint64_t> published_;  // by this rank
  Flag counters_;                    // at rank 0: [ranks][counters]
};

}  // namespace tandem::comm
