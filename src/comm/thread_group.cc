#include "comm/thread_group.h"

#include <utility>

#include "comm/heap_options.h"
#include "io/host.h"

namespace tandem::comm {

Result<std::unique_ptr<ThreadGroup>> ThreadGroup::create(Options options) {
  const size_t bytes = TANDEM_TRY(mapped_heap_bytes(options.ranks_count, options.heap_bytes));
  io::SharedMemory memory =
      TANDEM_TRY(io::SharedMemory::create(bytes * static_cast<size_t>(options.ranks_count)));
  return std::unique_ptr<ThreadGroup>(new ThreadGroup(options, std::move(memory)));
}

ThreadGroup::ThreadGroup(Options options, io::SharedMemory memory)
    : memory_(std::move(memory)),
      health_(std::vector<RankPlace>(static_cast<size_t>(options.ranks_count),
                                     {io::host_name(), io::process_id()})) {
  for (int rank = 0; rank < options.ranks_count; ++rank) {
    heaps_.push_back(std::make_unique<SymmetricHeap>(
        wait_options(rank, options.ranks_count, options.late_after), memory_.bytes(), health_));
  }
}

}  // namespace tandem::comm
