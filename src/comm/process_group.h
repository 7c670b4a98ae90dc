#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "comm/rendezvous.h"
#include "comm/symmetric_heap.h"
#include "comm/watch.h"

namespace tandem::comm {

/// One rank of a group whose ranks are processes of one host (several may be threads of one
/// process: each joins for itself). Owns the mapping of all heaps and the watch. Destroying it
/// leaves the group: the others go on as long as they need nothing of this rank.
class ProcessGroup {
 public:
  /// Returns when all ranks have come. Errors: rendezvous.h.
  static Result<std::unique_ptr<ProcessGroup>> join(RendezvousOptions options);

  SymmetricHeap& heap() { return heap_; }

  /// This rank cannot go on: every other rank's wait ends with an error that names it.
  void fail(const std::string& reason) { watch_->fail(reason); }

  /// Leaves the group before the end of this object, whose memory others may still write to.
  void leave() { watch_.reset(); }

 private:
  ProcessGroup(const RendezvousOptions& options, Meeting& meeting);

  io::SharedMemory memory_;
  GroupHealth health_;
  SymmetricHeap heap_;
  std::unique_ptr<Watch> watch_;
};

}  // namespace tandem::comm
