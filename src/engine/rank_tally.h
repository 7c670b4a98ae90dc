#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "comm/symmetric_heap.h"
#include "engine/request.h"

namespace tandem::engine {

/// What a rank counts while it steps. Written by its thread alone, read by any.
struct RankTally {
  std::atomic<uint64_t> steps{0};
  std::atomic<uint64_t> idle_steps{0};
  std::atomic<uint64_t> tokens{0};
  std::atomic<uint64_t> expert_pairs{0};

  /// After a step of its group's `step_tokens`, when its experts had computed `pairs` so far.
  void count_step(uint64_t step_tokens, uint64_t pairs);
};

/// A tally and the waits of the rank's heap as one row of numbers, which travels between ranks.
using TallyRow = std::array<uint64_t, 4 + comm::kWaitKindsCount>;
/// `heap` is null for a rank that has no peers.
TallyRow tally_row(const RankTally& tally, const comm::SymmetricHeap* heap);
/// The row as metrics show it; pages are not in it.
RankStatus rank_status(int rank, const TallyRow& row);

}  // namespace tandem::engine
