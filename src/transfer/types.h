#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "base/strong_id.h"
#include "transfer/arrival_table.h"
#include "transfer/time_point.h"
#include "transfer/wire.h"

namespace tandem::transfer {

// Ids of one engine, counted up from 1 and never used again.
using PeerId = StrongId<struct PeerTag, uint64_t>;          ///< another engine
using MemoryId = StrongId<struct MemoryTag, uint64_t>;      ///< own memory, on all rails
using GrantId = StrongId<struct GrantTag, uint64_t>;        ///< that a peer may write to memory
using TargetId = StrongId<struct TargetTag, uint64_t>;      ///< a peer's memory
using TransferId = StrongId<struct TransferTag, uint64_t>;  ///< writes that end together

/// Bounds of an engine. What would exceed one is refused with kResourceExhausted.
struct EngineOptions {
  std::string name = "engine";  ///< of this engine, for messages
  uint32_t transfers_max = 4096;
  uint32_t slices_max = 1 << 20;  ///< accepted and not yet posted, all transfers together
  uint32_t peers_max = 1024;
  uint32_t regions_max = 65536;  ///< memories, grants and targets, each
  uint32_t arrival_slots = 4096;
  uint32_t messages_max = 1024;  ///< accepted and not yet sent
  /// A slice larger than this is cut where a peer has several rails, so that it uses them all.
  uint64_t stripe_bytes = 1 << 20;
  /// One call of progress() posts and handles at most this many per rail.
  uint32_t steps_max = 256;
  /// A path that has delivered nothing for this long although writes are under way is lost.
  Duration stall_max = std::chrono::seconds(30);
  /// How long a peer may take to close what a lost path could still write to.
  Duration fence_max = std::chrono::seconds(5);
  Duration fence_retry = std::chrono::milliseconds(200);
};

/// How a transfer ended. Told exactly once.
struct TransferEnd {
  /// kCancelled, or what failed: names peer, rail, phase and bytes done.
  Result<void> outcome;
  /// Nothing of it can land any more: every submitted write was delivered, or surely never will be.
  /// False only after a failure, and then the target's memory must not be used for anything else
  /// until the target has closed its grant.
  bool is_settled = true;
  uint64_t bytes_submitted = 0;
  uint64_t bytes_delivered = 0;
};

struct TransferOptions {
  /// Counted at the target once for every slice; none: nobody is told.
  std::optional<Arrival> arrival;
  /// No other transfer counts into that slot and epoch of its targets. Then their count tells which
  /// of the immediates that a lost rail left unknown are missing, and the transfer goes on. If this
  /// is not so, it fails. To survive lost rails, give every writer its slot and one transfer.
  bool is_sole_writer = false;
  std::function<void(const TransferEnd&)> on_end;
};

/// From where to where the slices of one call go.
struct WritePath {
  MemoryId source;
  TargetId target;
};

/// One slice: contiguous bytes, one immediate. Offsets are from the starts of memory and target.
struct WriteRange {
  uint64_t source_offset = 0;
  uint64_t target_offset = 0;
  uint64_t bytes = 0;
};

/// Where page i of one side lies: base_offset + pages[i] * stride_bytes.
struct PageList {
  std::span<const uint32_t> pages;
  uint64_t stride_bytes = 0;
  uint64_t base_offset = 0;
};

/// One slice of a scatter.
struct ScatterRange {
  TargetId target;
  WriteRange range;
};

/// A grant and what the peer needs to use it; encode() makes it travel.
struct Grant {
  GrantId id;
  RegionDescriptor descriptor;
};

struct EngineCounts {
  uint64_t slices_delivered = 0;
  uint64_t bytes_delivered = 0;
  uint64_t writes_posted = 0;
  uint64_t writes_repeated = 0;      ///< taken over from a lost path
  uint64_t immediates_repeated = 0;  ///< with unknown fate, sent once more
  uint64_t paths_lost = 0;
  uint64_t fences_asked = 0;   ///< of peers
  uint64_t fences_failed = 0;  ///< refused or unanswered
  uint64_t fences_served = 0;  ///< for peers
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t messages_unreadable = 0;  ///< not in our format, or of a stranger
};

}  // namespace tandem::transfer
