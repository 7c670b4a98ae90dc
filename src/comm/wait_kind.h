#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tandem::comm {

/// For what a rank waits: the collective whose flag it is, as logs and metrics name it.
enum class WaitKind : uint8_t {
  kOther,  ///< a flag of no collective
  kBarrier,
  kAllGather,
  kAllReduce,
  kBroadcast,
  kGatherBlocks,
  kExpertCombine,
  kExpertDispatch,  ///< the first half of the exchange: somebody's tokens
  kExpertReturn,    ///< the second half: results of somebody's experts
  kStepHeader,      ///< what all ranks do next
};
constexpr size_t kWaitKindsCount = 10;

constexpr std::string_view name_of(WaitKind kind) {
  constexpr std::string_view kNames[] = {
      "other",         "barrier",        "all_gather",      "all_reduce",    "broadcast",
      "gather_blocks", "expert_combine", "expert_dispatch", "expert_return", "step_header"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == kWaitKindsCount);
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace tandem::comm
