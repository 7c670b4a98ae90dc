#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "transfer/libfabric/options.h"
#include "transfer/rail.h"

namespace tandem::transfer {

struct LibfabricRailOptions {
  LibfabricOptions network;
  uint32_t posts_max = 256;     ///< under way or waiting; at most an eighth of the provider's
  uint32_t receives_max = 128;  ///< messages that may come between two polls
  /// A peer that does not accept a connection for so long cannot be reached.
  std::chrono::milliseconds connect_max{10'000};
};

/// A rail over libfabric. prepare_libfabric() must have run in this process (kFailedPrecondition).
///
/// What differs between providers, found by test with libfabric 1.17:
/// - **tcp** fences: closing a registration keeps new writes out but not the rest of one that has
///   begun, so the connection with its writer is cut too (set_writer()). That loses the path to the
///   writer as well. Closing a peer cuts the same connection.
/// - **shm** does not: a write that the target refuses never ends at its source. Peers are watched
///   by their process. A peer that is killed inside a call of libfabric leaves a lock behind on
///   which the next call of ours may spin for ever (about one kill in ten under full load): use tcp
///   between processes that may die on their own.
/// - A write without bytes is delivered over shm when it is in the peer's queue: a confirmed one
///   never ends there. A message is delivered when it is handed to the network.
Result<std::unique_ptr<Rail>> create_libfabric_rail(const LibfabricRailOptions& options);

}  // namespace tandem::transfer
