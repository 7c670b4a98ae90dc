#include "engine/rank_tally.h"

namespace tandem::engine {
namespace {

/// One thread writes, so no increment is lost between the two halves.
void raise(std::atomic<uint64_t>& counter, uint64_t by) {
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

}  // namespace

void RankTally::count_step(uint64_t step_tokens, uint64_t pairs) {
  raise(steps, 1);
  if (step_tokens == 0) raise(idle_steps, 1);
  raise(tokens, step_tokens);
  expert_pairs.store(pairs, std::memory_order_relaxed);
}

TallyRow tally_row(const RankTally& tally, const comm::SymmetricHeap* heap) {
  TallyRow row = {tally.steps.load(std::memory_order_relaxed),
                  tally.idle_steps.load(std::memory_order_relaxed),
                  tally.tokens.load(std::memory_order_relaxed),
                  tally.expert_pairs.load(std::memory_order_relaxed)};
  for (size_t kind = 0; heap != nullptr && kind < comm::kWaitKindsCount; ++kind) {
    row[4 + kind] = heap->counters().wait_ns[kind].load(std::memory_order_relaxed);
  }
  return row;
}

RankStatus rank_status(int rank, const TallyRow& row) {
  RankStatus status{.rank = rank,
                    .steps = row[0],
                    .idle_steps = row[1],
                    .tokens = row[2],
                    .expert_pairs = row[3]};
  for (size_t kind = 0; kind < comm::kWaitKindsCount; ++kind) {
    status.waits.push_back({comm::name_of(static_cast<comm::WaitKind>(kind)), row[4 + kind]});
  }
  return status;
}

}  // namespace tandem::engine
