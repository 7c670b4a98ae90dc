#include "comm/step_header/step_header.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::comm {

Result<StepDecision> decide(std::span<const StepHeader> headers, uint64_t replicated_tokens_max) {
  TANDEM_CHECK(!headers.empty(), "a group has a rank");
  StepDecision decision{.epoch = headers[0].epoch, .plan_id = headers[0].plan_id, .is_idle = true};
  bool wants_exchange = false;
  for (size_t rank = 0; rank < headers.size(); ++rank) {
    const StepHeader& header = headers[rank];
    if (header.epoch != decision.epoch) {
      return make_error(Code::kInternal,
                        fmt::format("rank {} is at step {} and rank 0 at step {}: they have lost "
                                    "their lockstep",
                                    rank, header.epoch, decision.epoch));
    }
    decision.plan_id = std::min(decision.plan_id, header.plan_id);
    decision.tokens_sum += header.tokens;
    decision.draft_length = std::max(decision.draft_length, header.draft_length);
    if (header.has_work != 0 || header.tokens != 0) decision.is_idle = false;
    if (header.path == MoePath::kExchange) wants_exchange = true;
  }
  const bool is_small = decision.tokens_sum <= replicated_tokens_max;
  decision.path = is_small && !wants_exchange ? MoePath::kReplicated : MoePath::kExchange;
  return decision;
}

Result<StepLockstep> StepLockstep::create(SymmetricHeap& heap, uint64_t replicated_tokens_max) {
  return StepLockstep(
      TANDEM_TRY(AllGather::create(heap, sizeof(StepHeader), WaitKind::kStepHeader)),
      replicated_tokens_max);
}

void StepLockstep::start(const StepHeader& header) {
  gather_.start(std::as_bytes(std::span(&header, 1)));
}

Result<StepDecision> StepLockstep::finish() {
  const auto rows = TANDEM_TRY(gather_.finish());
  return decide(
      {reinterpret_cast<const StepHeader*>(rows.data()), rows.size() / sizeof(StepHeader)},
      replicated_tokens_max_);
}

}  // namespace tandem::comm
