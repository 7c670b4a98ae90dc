#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/expert_placement.h"

namespace tandem::comm {

/// Load of every rank when holders of an expert share its load evenly.
std::vector<double> rank_loads(const ExpertPlacement& placement, std::span<const uint64_t> loads);

/// Of loads of ranks, mean / maximum: 1 is perfect balance. 1 without load.
double balance_of(std::span<const double> rank_loads);

/// A placement of the same shape for these loads of one layer's experts, near `current`. A pure
/// function: ranks that call it alike need not tell each other.
///
/// Phases     1 copies: an expert that nobody holds takes an empty slot, or that of a copy; then
///              the heaviest share takes the slot of the expert that loses least by giving up a
///              copy, while that makes the heaviest share lighter
///            2 swaps: a fullest rank swaps an expert with another rank, the emptiest first, while
///              that makes the fuller of the two emptier
/// Bounds     every slot is used, no rank holds an expert twice;
///            load of the fullest rank <= mean + max(heaviest share, mean / 32), where the share of
///            an expert is its load / copies. No placement can do better than max(mean, heaviest
///            share), so this is at most twice the best. Phase 2 stops at mean * 33/32: less is not
///            worth a move.
/// Moves      what stays on a rank stays in its slot. Planning ends: a plan for the same loads is
///            returned as it is, as is anything when there is no load.
ExpertPlacement plan_experts(const ExpertPlacement& current, std::span<const uint64_t> loads);

/// Slots whose expert is another than before, and is one: weights that a plan makes ranks read.
int moved_slots(const ExpertPlacement& before, const ExpertPlacement& after);

}  // namespace tandem::comm
