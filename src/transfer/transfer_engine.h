#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transfer/rail.h"
#include "transfer/types.h"

namespace tandem::transfer {

/// Writes into the memory of other engines over all rails of a rank, and counts what arrives in its
/// own. **Nothing is ordered; arrival is counted.** The receiver arms `expect(slot, epoch, count)`,
/// then tells the writer; every slice brings exactly one immediate, and the last one completes it.
///
/// A slice larger than a provider's write, or than a stripe, is cut, and its count stays 1: only
/// its last part carries the immediate, and it is sent once all others are delivered. So a count
/// says that every byte of that many slices is visible.
///
/// **Lost rails.** When a path (one rail to one peer) is lost, the others take over what it had not
/// delivered. Of writes with unknown fate a late copy could still land after the transfer is over;
/// so the peer is asked to close the registrations of that rail first, and only then are they
/// repeated. If they carried immediates, the peer is also asked how many it has counted, while the
/// transfer pauses, and exactly the missing ones are sent again, behind all bytes. So a count stays
/// exact, and **when it is complete, nothing of its transfer can land any more**. With no path
/// left, or without the peer's answer, transfers to it fail and say whether they are settled. A
/// lost path stays lost: a peer that returns is added anew, and gives new grants.
///
/// **Threads.** Owned and driven by one thread; time comes only from the clock, and all that moves
/// moves in progress(). EngineDriver gives it a thread.
///
/// **No deadlock by callbacks.** Callbacks run at the end of progress(), when no state is half
/// changed, and may call everything here but progress(). Nothing here waits: a call that would
/// exceed a bound is refused with kResourceExhausted and has no effect. So a full queue can always
/// drain: draining needs progress() alone, and no callback can keep it from returning.
/// Completion queues need no bound of their own: one callback per transfer, wait, message and
/// revocation, each of which is bounded.
class TransferEngine {
 public:
  /// 1 to kRailsMax rails. The callback gets messages of peers; their sender is not known.
  static Result<std::unique_ptr<TransferEngine>> create(
      EngineOptions options, std::vector<std::unique_ptr<Rail>> rails, Clock clock,
      std::function<void(std::span<const std::byte>)> on_message);
  ~TransferEngine();

  // Peers.
  EngineAddress address() const;
  /// `name` is for messages. Connects on first use.
  Result<PeerId> add_peer(std::string name, const EngineAddress& address);
  /// Transfers to it fail, settled or not, once its rails have let go of their memory.
  void close_peer(PeerId peer);
  /// Rails that still reach it; 0 when it is unknown.
  uint32_t open_paths(PeerId peer) const;

  // Regions.
  Result<MemoryId> add_memory(const MemoryBlock& memory);
  /// kFailedPrecondition while transfers or grants use it.
  Result<void> remove_memory(MemoryId memory);
  /// Lets whoever gets the descriptor write to the memory. Make one per peer: revoking it is how a
  /// peer is fenced.
  /// Over tcp a fence cuts the connections with the `writer`; with all peers when none is named.
  Result<Grant> grant(MemoryId memory, std::optional<PeerId> writer = std::nullopt);
  /// `on_closed(true)`: no write through the grant can change a byte any more, nor count. False:
  /// a rail cannot promise that (shm).
  void revoke(GrantId grant, std::function<void(bool is_fenced)> on_closed);
  Result<TargetId> add_target(PeerId peer, RegionDescriptor descriptor);
  /// kFailedPrecondition while transfers use it.
  Result<void> remove_target(TargetId target);

  // Arrivals: see ArrivalTable.
  Result<void> expect(Arrival arrival, uint64_t count, std::function<void()> on_complete);
  bool cancel_expected(Arrival arrival);

  // Transfers. A call is taken as a whole or refused; kInvalidArgument names the range that does
  // not fit; kFailedPrecondition says that the transfer takes no more (ended, failed, cancelled).
  Result<TransferId> begin(TransferOptions options);
  Result<void> write(TransferId transfer, WritePath path, std::span<const WriteRange> slices);
  /// Page i of the source goes to page i of the target, `bytes` of each.
  Result<void> write_pages(TransferId transfer, WritePath path, const PageList& source,
                           const PageList& target, uint64_t bytes);
  /// An immediate without bytes.
  Result<void> write_imm(TransferId transfer, TargetId target);
  Result<void> scatter(TransferId transfer, MemoryId source, std::span<const ScatterRange> slices);
  /// No more writes follow: the transfer ends when all are delivered.
  Result<void> finish(TransferId transfer);
  /// Submits nothing more; ends when what was submitted is. Nothing happens if it ended already.
  void cancel(TransferId transfer);
  /// Calls back once, from progress(), when `slices` more fit. For one who waits at a time.
  Result<void> wait_for_room(uint32_t slices, std::function<void()> on_room);
  /// begin, one immediate to each, finish.
  Result<TransferId> barrier(std::span<const TargetId> targets, TransferOptions options);

  /// At most message_bytes_max() bytes. `on_end` once; after an error it may or may not arrive.
  Result<void> send(PeerId peer, std::span<const std::byte> message,
                    std::function<void(const Result<void>&)> on_end);
  uint32_t message_bytes_max() const;

  /// Moves everything forward without blocking, then makes the callbacks that are due. False when
  /// there was nothing to do.
  bool progress();
  /// When progress() has something to do even if no rail reports anything; at once after a call.
  std::optional<TimePoint> next_deadline() const;
  /// The rails, for whoever waits on their descriptors.
  std::span<const std::unique_ptr<Rail>> rails() const;

  const EngineCounts& counts() const;
  const ArrivalCounts& arrivals() const;
  uint32_t transfers_count() const;
  uint32_t slices_count() const;

 private:
  class Core;
  explicit TransferEngine(std::unique_ptr<Core> core);
  Core& touched();
  std::unique_ptr<Core> core_;
};

}  // namespace tandem::transfer
