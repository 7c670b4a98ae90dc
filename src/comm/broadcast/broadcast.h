#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "comm/symmetric_heap.h"

namespace tandem::comm {

/// Messages of rank 0 to all others, of any length up to a limit: how a leader tells its followers
/// what to do next. Both sides may idle between messages.
///
/// Phases     send: 1 wait until all have taken the message before the last, 2 put length and
///            message to every rank, signal. receive: 1 signal rank 0 that the message before is
///            done with, 2 wait
/// Bytes      (N-1) * (message + 8) at rank 0, none at the others
/// Roof       latency: one signal and one wake-up
/// Reuse      two buffers in turn: message e is written over e-2, which all were done with when
///            they asked for e-1
class Broadcast {
 public:
  /// All ranks, at the same place of their allocations.
  static Result<Broadcast> create(SymmetricHeap& heap, size_t message_bytes_max);

  /// On rank 0. The message may be reused at once.
  Result<void> send(std::span<const std::byte> message);
  /// On the others. Valid until the next call. A silent rank 0 is waited for without a log line:
  /// idling is normal. kUnavailable on a death.
  Result<std::span<const std::byte>> receive();

 private:
  Broadcast(SymmetricHeap& heap, size_t bytes_max, size_t buffers, Flag sent, Flag done)
      : heap_(&heap), bytes_max_(bytes_max), buffers_(buffers), sent_(sent), done_(done) {}
  size_t buffer() const;

  SymmetricHeap* heap_;
  size_t bytes_max_;
  size_t buffers_;  // offset of [2] lengths of 64 bytes, each followed by its message
  Flag sent_;
  Flag done_;  // at rank 0: one per source rank
  uint64_t epoch_ = 0;
};

}  // namespace tandem::comm
