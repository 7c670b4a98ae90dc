#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "comm/all_gather/all_gather.h"

namespace tandem::comm {

/// How a layer's tokens reach their experts.
enum class MoePath : uint32_t {
  kByTokens,    ///< in a header: this rank has no wish
  kReplicated,  ///< every rank gets every token: expert_select and expert_combine
  kExchange,    ///< expert_exchange, which fits any layout
};

/// What one rank says about its next step. Travels as bytes between ranks of one build.
struct StepHeader {
  uint64_t epoch = 0;     ///< of the step, the same on all ranks
  uint64_t plan_id = 0;   ///< the newest placement of experts that this rank is ready to use
  uint32_t tokens = 0;    ///< of this rank in that step
  uint32_t has_work = 0;  ///< 1 while a request lives here, even if it has no tokens now
  MoePath path = MoePath::kByTokens;
  uint32_t draft_length = 0;  ///< drafts per sequence of this rank

  bool operator==(const StepHeader&) const = default;
};
static_assert(sizeof(StepHeader) == 32);

/// What all ranks do in that step. A pure function of all headers, so nobody has to be told.
struct StepDecision {
  uint64_t epoch = 0;
  uint64_t plan_id = 0;  ///< the newest that every rank is ready for
  uint64_t tokens_sum = 0;
  bool is_idle = false;  ///< no rank has work: the group sleeps
  MoePath path = MoePath::kExchange;
  uint32_t draft_length = 0;  ///< of all: rows with fewer drafts are padded

  bool operator==(const StepDecision&) const = default;
};

/// The path is the exchange if any rank asks for it or the step has more than
/// `replicated_tokens_max` tokens, else replicated. kInternal, naming two ranks, when they are not
/// at the same step.
Result<StepDecision> decide(std::span<const StepHeader> headers, uint64_t replicated_tokens_max);

/// The lockstep of ranks that schedule independently: one small all-gather per step, made one step
/// ahead so that it costs no wait. Every rank takes part in every step, with or without tokens.
///
/// Phases     those of all_gather
/// Bytes      32 (N-1) per rank and step
/// Roof       latency, hidden behind the step before
class StepLockstep {
 public:
  /// All ranks, at the same place of their allocations.
  static Result<StepLockstep> create(SymmetricHeap& heap, uint64_t replicated_tokens_max);

  /// Says what this rank will do in the next step. Starts and finishes alternate.
  void start(const StepHeader& header);
  /// What all will do in the step that was announced last.
  Result<StepDecision> finish();

 private:
  StepLockstep(AllGather gather, uint64_t replicated_tokens_max)
      : gather_(std::move(gather)), replicated_tokens_max_(replicated_tokens_max) {}
  AllGather gather_;
  uint64_t replicated_tokens_max_;
};

}  // namespace tandem::comm
