#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "comm/regroup.h"
#include "comm/rendezvous.h"
#include "comm/symmetric_heap.h"
#include "comm/watch.h"

namespace tandem::comm {

/// One rank of a group whose ranks are processes of one host (several may be threads of one
/// process: each joins for itself). Owns the mapping of all heaps and the watch. Destroying it
/// leaves the group: the others go on as long as they need nothing of this rank. One thread.
class ProcessGroup {
 public:
  /// Returns when all ranks have come. Errors: rendezvous.h.
  static Result<std::unique_ptr<ProcessGroup>> join(RendezvousOptions options);

  /// Until regroup() or leave().
  SymmetricHeap& heap() { return *present_->heap; }

  /// Goes on among those that are left, after a wait said that somebody is gone. All survivors call
  /// it; nothing may use the old heap any more. After an Error this rank is out of the group, and
  /// the others go on without it.
  Result<Regrouped> regroup(const std::string& brings);

  /// This rank cannot go on: every other rank's wait ends with an error that names it.
  void fail(const std::string& reason);

  /// Leaves the group before the end of this object, whose memory others may still write to.
  void leave();

 private:
  /// The group as it is now.
  struct Present {
    explicit Present(std::vector<RankPlace> places, std::vector<int> numbers = {})
        : health(std::move(places), std::move(numbers)) {}
    std::optional<io::SharedMemory> memory;
    GroupHealth health;
    std::optional<SymmetricHeap> heap;
    std::unique_ptr<Watch> watch;
  };

  ProcessGroup(const RendezvousOptions& options, Meeting& meeting);
  Result<Regrouped> enter(Reunion reunion);

  const std::chrono::milliseconds late_after_;
  ReunionOptions reunion_;
  Roster roster_;
  std::optional<io::Listener> listener_;  // where survivors find this rank; none once it has left
  std::unique_ptr<Present> present_;
};

}  // namespace tandem::comm
