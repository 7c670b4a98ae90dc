#include "comm/shared_counters/shared_counters.h"

#include "base/check.h"

namespace tandem::comm {

Result<SharedCounters> SharedCounters::create(SymmetricHeap& heap, int counters_count) {
  const Flag counters = TANDEM_TRY(heap.allocate_flags(heap.ranks_count() * counters_count));
  return SharedCounters(heap, counters_count, counters);
}

Flag SharedCounters::flag_of(int rank, size_t counter) const {
  return SymmetricHeap::flag_at(
      counters_, rank * static_cast<int>(published_.size()) + static_cast<int>(counter));
}

void SharedCounters::publish(std::span<const uint64_t> counters) {
  TANDEM_CHECK(counters.size() == published_.size(), "as many counters as announced");
  for (size_t i = 0; i < counters.size(); ++i) {
    if (counters[i] == published_[i]) continue;
    TANDEM_CHECK(counters[i] > published_[i], "a counter only grows");
    heap_->signal(0, flag_of(heap_->rank(), i), counters[i]);
    published_[i] = counters[i];
  }
}

uint64_t SharedCounters::read(int rank, int counter) const {
  TANDEM_CHECK(heap_->rank() == 0, "counters come to rank 0");
  return heap_->epoch_of(flag_of(rank, static_cast<size_t>(counter)));
}

}  // namespace tandem::comm
