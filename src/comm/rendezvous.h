#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "comm/connection.h"
#include "comm/group_health.h"
#include "comm/symmetric_heap.h"
#include "io/shared_memory.h"
#include "io/socket.h"

namespace tandem::comm {

/// What ranks must agree on before they meet.
struct RendezvousOptions {
  io::Endpoint address;  ///< rank 0 listens there, the others connect (--dist-init-addr)
  int rank = 0;
  int ranks_count = 1;
  size_t heap_bytes = 0;  ///< of each rank; whole pages
  /// What else must be equal on all ranks, name and value: model, dtype, sharding, ...
  std::vector<std::pair<std::string, std::string>> settings;
  std::chrono::milliseconds start_timeout{60'000};  ///< until all must have come (--dist-timeout)
  /// A rank that another has waited for so long is logged by name. May differ between ranks.
  std::chrono::milliseconds late_after = SymmetricHeap::kLateAfter;
  /// So many ranks in order go on together or not at all when some are lost.
  int inseparable_ranks = 1;
};

/// A group that has met: everything in it is connected, and the heaps are mapped.
struct Meeting {
  /// By rank. Rank 0 is connected to all others, each of them to rank 0 only.
  std::vector<std::optional<Connection>> connections;
  std::vector<RankPlace> places;
  io::SharedMemory memory;
  std::string key;         ///< known to members only
  io::Listener survivors;  ///< where the others look for this rank when some are lost
};

/// Brings the ranks of one host together. Rank 0 compares what every rank brings with its own,
/// makes the heaps and hands their descriptor over a local socket that only a holder of the
/// group's random key finds. Every rank that came gets the same answer: all met, or one error
/// that says which rank of which host died or never came.
///
/// A process that brings another version, other settings or the number of a rank that has come is
/// refused alone: it learns what differs, with both values of every field, and its place stays
/// free. Strangers and silent connections hold nobody up.
Result<Meeting> meet(const RendezvousOptions& options);

}  // namespace tandem::comm
