#pragma once

#include "base/result.h"
#include "comm/symmetric_heap.h"

namespace tandem::comm {

/// Calls body(peer) for every other rank, this rank's successor first, so that N ranks start with N
/// different targets.
template <typename Body>
void for_each_peer(const SymmetricHeap& heap, Body&& body) {
  for (int step = 1; step < heap.ranks_count(); ++step) {
    body((heap.rank() + step) % heap.ranks_count());
  }
}

/// Tells every other rank that this one has come to `epoch`; `flags` has one flag per source rank.
inline void signal_peers(SymmetricHeap& heap, Flag flags, uint64_t epoch) {
  const Flag own = SymmetricHeap::flag_at(flags, heap.rank());
  for_each_peer(heap, [&](int peer) { heap.signal(peer, own, epoch); });
}

/// Waits until every other rank has come to `epoch`.
inline Result<void> wait_for_peers(SymmetricHeap& heap, Flag flags, uint64_t epoch) {
  for (int peer = 0; peer < heap.ranks_count(); ++peer) {
    if (peer == heap.rank()) continue;
    TANDEM_TRY(heap.wait(SymmetricHeap::flag_at(flags, peer), epoch, peer));
  }
  return {};
}

}  // namespace tandem::comm
