#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "comm/symmetric_heap.h"
#include "io/shared_memory.h"

namespace tandem::comm {

/// Ranks that are threads of this process. Owns their heaps; outlives the ranks' threads, each of
/// which uses its own heap only. A thread cannot die alone, so a rank that gives up says so.
class ThreadGroup {
 public:
  struct Options {
    int ranks_count = 1;  ///< 1 to 1024
    size_t heap_bytes = 0;
    /// A rank that another has waited for so long is logged by name.
    std::chrono::milliseconds late_after = SymmetricHeap::kLateAfter;
  };
  static Result<std::unique_ptr<ThreadGroup>> create(Options options);

  SymmetricHeap& heap(int rank) { return *heaps_[static_cast<size_t>(rank)]; }
  int ranks_count() const { return static_cast<int>(heaps_.size()); }

  /// The rank is done; the others may go on without it. From its thread.
  void leave(int rank) { health_.departed(rank); }
  /// The rank cannot go on: every other rank's wait ends with an error that names it.
  void fail(int rank, const std::string& reason) { health_.died(rank, reason); }

 private:
  ThreadGroup(Options options, io::SharedMemory memory);

  io::SharedMemory memory_;
  GroupHealth health_;
  std::vector<std::unique_ptr<SymmetricHeap>> heaps_;
};

}  // namespace tandem::comm
