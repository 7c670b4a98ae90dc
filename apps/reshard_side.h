#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "apps/reshard_moves.h"
#include "apps/transfer_control.h"
#include "base/result.h"
#include "transfer/libfabric/options.h"
#include "transfer/transfer_engine.h"

namespace tandem::apps {

/// One of the two sides of `bench transfer --kinds reshard`: four ranks, each an engine with a rail
/// and memory of its own. One thread drives them all, spins, and yields when nothing moves.
class ReshardSide {
 public:
  struct Options {
    transfer::LibfabricOptions network;
    uint32_t writes_max = 64;  ///< of a rail, under way
  };
  /// Meets the other side, which does the same. `control` must outlive the object.
  static Result<std::unique_ptr<ReshardSide>> meet(const Options& options,
                                                   TransferControl& control);

  /// Source: seconds until all is delivered and the target has said that it counted it.
  Result<double> write(Reshard onto);
  /// Source: lets serve() return.
  Result<void> finish();
  /// Target: counts what each round writes, until finish().
  Result<void> serve();

 private:
  struct Rank {
    std::vector<std::byte> bytes;
    std::unique_ptr<transfer::TransferEngine> engine;
    transfer::MemoryId memory;
    // Of each of the other side's ranks.
    std::vector<transfer::PeerId> peers;
    std::vector<transfer::RegionDescriptor> regions;  // until they are targets
    std::vector<transfer::TargetId> targets;
  };
  explicit ReshardSide(TransferControl& control) : control_(control) {}
  Result<void> open_ranks(const Options& options);
  Result<void> join_ranks();
  Result<void> submit(const ReshardMove& move);
  /// Until all that was begun has ended.
  Result<void> await_all();

  TransferControl& control_;
  std::vector<Rank> ranks_;
  uint16_t epoch_ = 0;            // of the round; both sides count alike
  uint64_t begun_ = 0;            // transfers of the source, waits of the target
  uint64_t ended_ = 0;            // of those
  std::optional<Error> failure_;  // of a transfer
};

}  // namespace tandem::apps
