#pragma once

#include <chrono>
#include <cstddef>

#include "base/result.h"
#include "comm/symmetric_heap.h"

namespace tandem::comm {

constexpr int kRanksMax = 1024;
constexpr size_t kHeapBytesMax = size_t{1} << 40;

/// The size of every heap as it is mapped: whole pages, so that heaps side by side share none.
/// kInvalidArgument, with the bounds, for a group that cannot be.
Result<size_t> mapped_heap_bytes(int ranks_count, size_t heap_bytes);

/// How this rank waits, where all ranks share this host's cores. Spinning pays only when the peer
/// has a core of its own.
SymmetricHeap::Options wait_options(int rank, int ranks_count,
                                    std::chrono::milliseconds late_after);

}  // namespace tandem::comm
