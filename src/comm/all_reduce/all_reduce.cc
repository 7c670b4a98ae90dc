#include "comm/all_reduce/all_reduce.h"

#include <algorithm>

#include "base/check.h"
#include "comm/all_reduce/add_rows.h"
#include "comm/peers.h"

namespace tandem::comm {
namespace {

constexpr int64_t kLineFloats = 16;  // a cache line is never written by two ranks

/// Which part of a message a rank adds: equal parts of whole lines, the last ones shorter or empty.
struct Slice {
  size_t first = 0;
  size_t count = 0;
};

int64_t slice_floats(int64_t floats, int ranks) {
  const int64_t share = (floats + ranks - 1) / ranks;
  return (share + kLineFloats - 1) / kLineFloats * kLineFloats;
}

Slice slice_of(size_t floats, int ranks, int rank) {
  const auto share = static_cast<size_t>(slice_floats(static_cast<int64_t>(floats), ranks));
  const size_t first = std::min(floats, share * static_cast<size_t>(rank));
  return {first, std::min(share, floats - first)};
}

}  // namespace

Result<AllReduce> AllReduce::create(SymmetricHeap& heap, Options options) {
  TANDEM_CHECK(options.floats_max >= 1, "messages have a limit");
  options.one_shot_floats_max = std::min(options.one_shot_floats_max, options.floats_max);
  const auto ranks = static_cast<size_t>(heap.ranks_count());
  const auto floats = [](int64_t count) { return static_cast<size_t>(count) * sizeof(float); };
  const int64_t slice = slice_floats(options.floats_max, heap.ranks_count());
  Layout layout;
  layout.one_shot = TANDEM_TRY(heap.allocate(2 * ranks * floats(options.one_shot_floats_max)));
  layout.slices = TANDEM_TRY(heap.allocate(ranks * floats(slice)));
  layout.sums = TANDEM_TRY(heap.allocate(floats(options.floats_max)));
  layout.first_arrived = TANDEM_TRY(heap.allocate_flags(heap.ranks_count(), options.kind));
  layout.second_arrived = TANDEM_TRY(heap.allocate_flags(heap.ranks_count(), options.kind));
  return AllReduce(heap, options, layout);
}

Result<void> AllReduce::run(Stream& stream, std::span<const float> x, std::span<float> y) {
  TANDEM_CHECK(x.size() == y.size(), "the sum is as long as its parts");
  while (!x.empty()) {
    const size_t piece = std::min(x.size(), static_cast<size_t>(options_.floats_max));
    if (piece <= static_cast<size_t>(options_.one_shot_floats_max)) {
      TANDEM_TRY(one_shot(stream, x.first(piece), y.first(piece)));
    } else {
      TANDEM_TRY(two_shot(stream, x.first(piece), y.first(piece)));
    }
    x = x.subspan(piece);
    y = y.subspan(piece);
  }
  return {};
}

Result<void> AllReduce::one_shot(Stream& stream, std::span<const float> x, std::span<float> y) {
  ++epoch_;
  const auto ranks = static_cast<size_t>(heap_->ranks_count());
  const size_t row_bytes = static_cast<size_t>(options_.one_shot_floats_max) * sizeof(float);
  const size_t buffer = layout_.one_shot + one_shots_count_++ % 2 * ranks * row_bytes;
  const auto row = [&](int rank) { return buffer + static_cast<size_t>(rank) * row_bytes; };
  const Flag own_flag = SymmetricHeap::flag_at(layout_.first_arrived, heap_->rank());
  for_each_peer(*heap_, [&](int peer) {
    heap_->put(peer, row(heap_->rank()), std::as_bytes(x));
    heap_->signal(peer, own_flag, epoch_);
  });
  TANDEM_TRY(wait_for_peers(*heap_, layout_.first_arrived, epoch_));
  for (int rank = 0; rank < heap_->ranks_count(); ++rank) {
    rows_[static_cast<size_t>(rank)] =
        rank == heap_->rank() ? x.data() : heap_->local<float>(row(rank));
  }
  return add_rows(stream, {.rows = rows_, .y = y});
}

Result<void> AllReduce::two_shot(Stream& stream, std::span<const float> x, std::span<float> y) {
  ++epoch_;
  const int self = heap_->rank();
  const int ranks = heap_->ranks_count();
  const auto slice_bytes =
      static_cast<size_t>(slice_floats(options_.floats_max, ranks)) * sizeof(float);
  const auto arriving = [&](int source) {
    return layout_.slices + static_cast<size_t>(source) * slice_bytes;
  };
  for_each_peer(*heap_, [&](int peer) {
    const Slice slice = slice_of(x.size(), ranks, peer);
    heap_->put(peer, arriving(self), std::as_bytes(x.subspan(slice.first, slice.count)));
    heap_->signal(peer, SymmetricHeap::flag_at(layout_.first_arrived, self), epoch_);
  });

  TANDEM_TRY(wait_for_peers(*heap_, layout_.first_arrived, epoch_));
  const Slice own = slice_of(x.size(), ranks, self);
  const std::span<float> sum = y.subspan(own.first, own.count);
  for (int rank = 0; rank < ranks; ++rank) {
    rows_[static_cast<size_t>(rank)] =
        rank == self ? x.data() + own.first : heap_->local<float>(arriving(rank));
  }
  TANDEM_TRY(add_rows(stream, {.rows = rows_, .y = sum}));
  for_each_peer(*heap_, [&](int peer) {
    heap_->put(peer, layout_.sums + own.first * sizeof(float), std::as_bytes(sum));
    heap_->signal(peer, SymmetricHeap::flag_at(layout_.second_arrived, self), epoch_);
  });

  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == self) continue;
    TANDEM_TRY(heap_->wait(SymmetricHeap::flag_at(layout_.second_arrived, peer), epoch_, peer));
    const Slice slice = slice_of(x.size(), ranks, peer);
    std::copy_n(heap_->local<float>(layout_.sums) + slice.first, slice.count,
                y.data() + slice.first);
  }
  return {};
}

}  // namespace tandem::comm
