#include "comm/measure_heap.h"

#include <algorithm>

#include "comm/heap_options.h"

namespace tandem::comm {
namespace {

constexpr size_t kHeapBytesMin = 64;  // a group has heaps, even if nothing lives in them

}  // namespace

Result<size_t> measure_heap(int ranks_count,
                            const std::function<Result<void>(SymmetricHeap&)>& allocate) {
  TANDEM_CHECK(ranks_count >= 1 && ranks_count <= kRanksMax, "a group that can be");
  const GroupHealth health(std::vector<RankPlace>(static_cast<size_t>(ranks_count)));
  const std::span<std::byte> nowhere(static_cast<std::byte*>(nullptr),
                                     kHeapBytesMax * static_cast<size_t>(ranks_count));
  SymmetricHeap heap({.rank = 0, .ranks_count = ranks_count}, nowhere, health);
  TANDEM_TRY(allocate(heap));
  return std::max(heap.bytes_used(), kHeapBytesMin);
}

}  // namespace tandem::comm
