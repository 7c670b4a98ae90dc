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
  TANDEM_CHECK(options.floats_max >= 1 && options.piece_floats >= 1, "messages have limits");
  options.one_shot_floats_max = std::min(options.one_shot_floats_max, options.floats_max);
  const auto ranks = static_cast<size_t>(heap.ranks_count());
  // Whole cache lines for every rank.
  options.piece_floats =
      slice_floats(options.piece_floats, heap.ranks_count()) * heap.ranks_count();
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
  const auto length = static_cast<size_t>(options_.piece_floats);
  const size_t count = (x.size() + length - 1) / length;
  const auto piece = [&](size_t number) {
    const size_t first = number * length;
    return Piece{.epoch = epoch_ + 1 + number,
                 .first = first,
                 .x = x.subspan(first, std::min(length, x.size() - first)),
                 .y = y.subspan(first, std::min(length, x.size() - first))};
  };
  send_slices(piece(0));
  for (size_t number = 0; number < count; ++number) {
    if (number + 1 < count) send_slices(piece(number + 1));
    TANDEM_TRY(add_slices(stream, piece(number)));
    if (number > 0) TANDEM_TRY(take_sums(piece(number - 1)));
  }
  TANDEM_TRY(take_sums(piece(count - 1)));
  epoch_ += count;
  return {};
}

/// Where slices of `source` arrive on every rank.
size_t AllReduce::arriving(int source, const Piece& piece) const {
  const int ranks = heap_->ranks_count();
  const auto slice = static_cast<size_t>(slice_floats(options_.floats_max, ranks));
  // Pieces before this one are whole, so each took an equal part of the source's place.
  return layout_.slices +
         (static_cast<size_t>(source) * slice + piece.first / static_cast<size_t>(ranks)) *
             sizeof(float);
}

void AllReduce::send_slices(const Piece& piece) {
  const int self = heap_->rank();
  for_each_peer(*heap_, [&](int peer) {
    const Slice slice = slice_of(piece.x.size(), heap_->ranks_count(), peer);
    heap_->put(peer, arriving(self, piece),
               std::as_bytes(piece.x.subspan(slice.first, slice.count)));
    heap_->signal(peer, SymmetricHeap::flag_at(layout_.first_arrived, self), piece.epoch);
  });
}

Result<void> AllReduce::add_slices(Stream& stream, const Piece& piece) {
  const int self = heap_->rank();
  TANDEM_TRY(wait_for_peers(*heap_, layout_.first_arrived, piece.epoch));
  const Slice own = slice_of(piece.x.size(), heap_->ranks_count(), self);
  const std::span<float> sum = piece.y.subspan(own.first, own.count);
  for (int rank = 0; rank < heap_->ranks_count(); ++rank) {
    rows_[static_cast<size_t>(rank)] =
        rank == self ? piece.x.data() + own.first : heap_->local<float>(arriving(rank, piece));
  }
  TANDEM_TRY(add_rows(stream, {.rows = rows_, .y = sum}));
  for_each_peer(*heap_, [&](int peer) {
    heap_->put(peer, layout_.sums + (piece.first + own.first) * sizeof(float), std::as_bytes(sum));
    heap_->signal(peer, SymmetricHeap::flag_at(layout_.second_arrived, self), piece.epoch);
  });
  return {};
}

Result<void> AllReduce::take_sums(const Piece& piece) {
  for (int peer = 0; peer < heap_->ranks_count(); ++peer) {
    if (peer == heap_->rank()) continue;
    TANDEM_TRY(
        heap_->wait(SymmetricHeap::flag_at(layout_.second_arrived, peer), piece.epoch, peer));
    const Slice slice = slice_of(piece.y.size(), heap_->ranks_count(), peer);
    std::copy_n(heap_->local<float>(layout_.sums) + piece.first + slice.first, slice.count,
                piece.y.data() + slice.first);
  }
  return {};
}

}  // namespace tandem::comm
