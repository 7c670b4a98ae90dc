#pragma once

#include <vector>

#include "tests/ranks/rank_scorer.h"

namespace tandem::ranks {

/// Texts, each with the digest of its logits on one rank.
struct Scored {
  std::vector<Text> texts;
  std::vector<uint64_t> digests;

  /// Those of one data-parallel group, dealt out in turn.
  Scored share(const model::Layout& layout, int data_rank) const;
};
Scored score_on_one_rank(const ScoredModel& model, const std::vector<Text>& texts);

/// What one rank does in a test: it scores the texts of its group, with idle steps before (each
/// group starts later than the one before) and after them, until all groups are done. kInternal
/// when its logits do not have the bits of one rank.
Result<void> compare_rank(const ScoredModel& model, const model::Layout& layout, int rank,
                          comm::SymmetricHeap* heap, const Scored& expected);

/// Runs the layout as threads and expects on every rank the bits of one rank.
void expect_bits_of_one_rank(const ScoredModel& model, const model::Layout& layout,
                             const Scored& expected);

}  // namespace tandem::ranks
