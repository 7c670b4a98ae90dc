#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "comm/symmetric_heap.h"
#include "device/device.h"

namespace tandem::comm {

/// y = sum of every rank's x, the same bits on every rank: rows are added in the binary tree over
/// ranks. When each rank's x is the sum of an aligned power-of-two range of parts, the result is
/// the sum of all parts in their binary tree, as one rank would make it. A rank with no part gives
/// kNoPart, which changes no bit of what it is added to.
///
/// One-shot   1 put x to every rank, 2 wait for all, add N rows
///            bytes (N-1) B per rank; one wait: for short messages
/// Two-shot   1 put slice s of x to rank s, 2 wait for all, add N rows of the own slice, put the
///            sum to every rank, 3 wait for all, copy their sums
///            per piece of x: phase 1 of a piece comes before phase 2 of the one before, and phase
///            3 after phase 2 of the next, so that a rank has work while others are late, and what
///            travels stays in caches
///            bytes 2 (N-1) B / N per rank (exactly: all of x but the own slice, then N-1 times the
///            own slice; slices are whole cache lines)
/// Roof       memory: a rank writes what it puts and reads N B (one-shot) or 3 B (two-shot)
/// Reuse      one-shot: two buffers in turn. Two-shot: one each. A rank puts a slice after the call
///            before, which ended with everyone's sum, made from the slices before; it puts a sum
///            after everyone's slices of this call, which follow everyone's end of the one before.
///            Pieces of one call lie side by side, each with an epoch of its own.
class AllReduce {
 public:
  struct Options {
    int64_t floats_max = 0;  ///< longer messages go in pieces of this size
    /// At most this long goes one-shot. The result does not depend on it.
    int64_t one_shot_floats_max = 8192;
    /// A two-shot goes in pieces of about this size. Nor on this.
    int64_t piece_floats = 1 << 15;
    WaitKind kind = WaitKind::kAllReduce;  ///< of which collective this is a part
  };
  /// The neutral element of addition for every float, +0 and -0 included.
  static constexpr float kNoPart = -0.0f;

  /// All ranks, at the same place of their allocations, with the same options.
  static Result<AllReduce> create(SymmetricHeap& heap, Options options);

  /// All ranks with the same length. x and y may be the same memory.
  Result<void> run(Stream& stream, std::span<const float> x, std::span<float> y);

 private:
  struct Layout {
    size_t one_shot = 0;       // offset of [2][ranks][one_shot_floats_max]
    size_t slices = 0;         // offset of [ranks][slice_floats_max]
    size_t sums = 0;           // offset of [floats_max]
    Flag first_arrived = {};   // one per source rank: x, or a slice of it
    Flag second_arrived = {};  // one per source rank: the sum of its slice
  };
  AllReduce(SymmetricHeap& heap, Options options, Layout layout)
      : heap_(&heap),
        options_(options),
        layout_(layout),
        rows_(static_cast<size_t>(heap.ranks_count())) {}
  Result<void> one_shot(Stream& stream, std::span<const float> x, std::span<float> y);
  Result<void> two_shot(Stream& stream, std::span<const float> x, std::span<float> y);

  struct Piece {
    uint64_t epoch = 0;
    size_t first = 0;  // float of the message
    std::span<const float> x;
    std::span<float> y;
  };
  size_t arriving(int source, const Piece& piece) const;
  void send_slices(const Piece& piece);
  Result<void> add_slices(Stream& stream, const Piece& piece);
  Result<void> take_sums(const Piece& piece);

  SymmetricHeap* heap_;
  Options options_;
  Layout layout_;
  std::vector<const float*> rows_;  // what the running call adds, by rank
  uint64_t epoch_ = 0;
  uint64_t one_shots_count_ = 0;
};

}  // namespace tandem::comm
