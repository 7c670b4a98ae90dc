#include "comm/all_gather/all_gather.h"

#include "base/check.h"
#include "comm/peers.h"

namespace tandem::comm {

Result<AllGather> AllGather::create(SymmetricHeap& heap, size_t row_bytes, WaitKind kind) {
  const auto ranks = static_cast<size_t>(heap.ranks_count());
  const size_t rows = TANDEM_TRY(heap.allocate(2 * ranks * row_bytes));
  return AllGather(heap, row_bytes, rows,
                   TANDEM_TRY(heap.allocate_flags(heap.ranks_count(), kind)));
}

size_t AllGather::buffer() const {
  return rows_ + epoch_ % 2 * static_cast<size_t>(heap_->ranks_count()) * row_bytes_;
}

void AllGather::start(std::span<const std::byte> row) {
  TANDEM_CHECK(!started_, "a start follows a finish");
  TANDEM_CHECK(row.size() <= row_bytes_, "no row is longer than announced");
  started_ = true;
  ++epoch_;
  const size_t own_row = buffer() + static_cast<size_t>(heap_->rank()) * row_bytes_;
  const Flag own_flag = SymmetricHeap::flag_at(arrived_, heap_->rank());
  heap_->put(heap_->rank(), own_row, row);
  for_each_peer(*heap_, [&](int peer) {
    heap_->put(peer, own_row, row);
    heap_->signal(peer, own_flag, epoch_);
  });
}

Result<std::span<const std::byte>> AllGather::finish() {
  TANDEM_CHECK(started_, "a finish follows a start");
  started_ = false;
  TANDEM_TRY(wait_for_peers(*heap_, arrived_, epoch_));
  return std::span<const std::byte>(heap_->local<std::byte>(buffer()),
                                    static_cast<size_t>(heap_->ranks_count()) * row_bytes_);
}

}  // namespace tandem::comm
