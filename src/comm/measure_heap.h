#pragma once

#include <cstddef>
#include <functional>

#include "base/result.h"
#include "comm/symmetric_heap.h"

namespace tandem::comm {

/// The bytes that `allocate` takes of each heap of a group, found by running it as rank 0 on a heap
/// without memory: it may create collectives and subgroups, and use none of them. The size of a
/// heap and what lives in it cannot disagree.
Result<size_t> measure_heap(int ranks_count,
                            const std::function<Result<void>(SymmetricHeap&)>& allocate);

}  // namespace tandem::comm
