#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "comm/symmetric_heap.h"

namespace tandem::comm {

/// Gives every rank one row from every rank, in two halves so that other work fits between.
///
/// Phases     start: put the row to every rank and signal it; finish: wait for every rank
/// Bytes      (N-1) * bytes of its row per rank
/// Roof       small rows: one signal and one wake-up; large rows: the copy
/// Reuse      two buffers in turn. A rank puts row e+2 after its finish(e+1), which waited for
///            everyone's start(e+1), which comes after that rank was done with row e.
class AllGather {
 public:
  /// All ranks, at the same place of their allocations. `kind`: of which collective this is a part.
  static Result<AllGather> create(SymmetricHeap& heap, size_t row_bytes,
                                  WaitKind kind = WaitKind::kAllGather);

  /// `row` is at most row_bytes long and may be reused at once. Starts and finishes alternate.
  void start(std::span<const std::byte> row);
  /// The rows of all ranks in rank order, row_bytes apart; valid until the next start. What a
  /// shorter row leaves of its place is undefined.
  Result<std::span<const std::byte>> finish();

 private:
  AllGather(SymmetricHeap& heap, size_t row_bytes, size_t rows, Flag arrived)
      : heap_(&heap), row_bytes_(row_bytes), rows_(rows), arrived_(arrived) {}
  size_t buffer() const;

  SymmetricHeap* heap_;
  size_t row_bytes_;
  size_t rows_;   // offset of [2][ranks][row_bytes]
  Flag arrived_;  // one per source rank
  uint64_t epoch_ = 0;
  bool started_ = false;
};

}  // namespace tandem::comm
