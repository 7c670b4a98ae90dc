#include "comm/doorbell/doorbell.h"

namespace tandem::comm {

Result<Doorbell> Doorbell::create(SymmetricHeap& heap) {
  return Doorbell(heap, TANDEM_TRY(heap.allocate_flags(1)));
}

void Doorbell::arm() {
  armed_->fetch_add(1);
}

Result<void> Doorbell::wait() {
  return heap_->wait_idle(bell_, armed_->load());
}

void Doorbell::ring() {
  const uint64_t sleep = armed_->load();
  for (int rank = 0; rank < heap_->ranks_count(); ++rank) heap_->signal(rank, bell_, sleep);
}

}  // namespace tandem::comm
