#include "comm/barrier/barrier.h"

#include "comm/peers.h"

namespace tandem::comm {

Result<Barrier> Barrier::create(SymmetricHeap& heap) {
  return Barrier(heap, TANDEM_TRY(heap.allocate_flags(heap.ranks_count(), WaitKind::kBarrier)));
}

Result<void> Barrier::wait() {
  ++epoch_;
  signal_peers(*heap_, arrived_, epoch_);
  return wait_for_peers(*heap_, arrived_, epoch_);
}

}  // namespace tandem::comm
