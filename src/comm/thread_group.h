#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "comm/regroup.h"
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
    int inseparable_ranks = 1;  ///< so many in order go on together or not at all
  };
  static Result<std::unique_ptr<ThreadGroup>> create(Options options);

  /// Of a rank, by its number at the start; until it regroups.
  SymmetricHeap& heap(int rank);
  int ranks_count() const { return options_.ranks_count; }

  /// As ProcessGroup::regroup. From the rank's thread; waits for all that are not gone.
  Result<Regrouped> regroup(int rank, const std::string& brings);

  /// The rank is done; the others may go on without it. From its thread.
  void leave(int rank);
  /// The rank cannot go on: every other rank's wait ends with an error that names it.
  void fail(int rank, const std::string& reason);

 private:
  /// The group from one loss to the next.
  struct Generation {
    Generation(io::SharedMemory memory, std::vector<int> ranks,
               std::chrono::milliseconds late_after);
    int index_of(int rank) const;

    io::SharedMemory memory;
    const std::vector<int> ranks;  // numbers at the start
    GroupHealth health;
    std::vector<std::unique_ptr<SymmetricHeap>> heaps;
    std::vector<std::string> brought;
  };

  ThreadGroup(const Options& options, std::shared_ptr<Generation> first);
  std::shared_ptr<Generation> generation(int rank);

  const Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Roster roster_;                                     // guarded by mutex_
  std::vector<std::shared_ptr<Generation>> present_;  // of each rank; guarded by mutex_
  std::map<int, std::string> come_;  // who wants to regroup, and what it brings; by mutex_
};

}  // namespace tandem::comm
