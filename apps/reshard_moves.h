#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "kv/transfer_plan.h"

namespace tandem::apps {

/// Onto which ranks `bench transfer` moves the K and V of a prefill group of four ranks.
enum class Reshard : uint32_t {
  kEqual,         ///< four ranks with a quarter of the heads each, as at the source
  kOneRank,       ///< one rank that holds all heads
  kDataParallel,  ///< four such ranks, each with a quarter of the tokens: a sequence of its own
};

/// One sequence's way from the source's ranks to the target's.
struct ReshardMove {
  kv::TransferPlan plan;
  uint32_t target_first = 0;  ///< the target's engine that is the plan's rank 0
  std::vector<PageId> source_pages, target_pages;
};

/// The shapes that all moves share: one KV head per source rank, and pages of 256 tokens of 128
/// numbers of bf16, so that a slice has 64 KiB in every move.
struct ReshardShape {
  static constexpr uint32_t kRanks = 4;
  static constexpr uint32_t kPools = 8;  ///< K and V of 4 layers, one after the other
  static constexpr uint32_t kPages = 16;
  static constexpr uint64_t kSliceBytes = 65536;
  static constexpr uint64_t kMoveBytes = kSliceBytes * kRanks * kPools * kPages;
};

/// What the product's own planner makes of it; every way moves ReshardShape::kMoveBytes.
Result<std::vector<ReshardMove>> plan_reshard(Reshard onto);

}  // namespace tandem::apps
