#pragma once

#include <vector>

#include "tests/ranks/rank_scorer.h"

namespace tandem::ranks {

/// What one rank does in a test: the texts of its data-parallel group, dealt out in turn, with
/// idle steps before (each group starts later than the one before) and after them, until all
/// groups are done. Returns the logits of its texts.
Result<std::vector<float>> score_share(const ScoredModel& model, const model::Layout& layout,
                                       int rank, comm::SymmetricHeap* heap,
                                       const std::vector<Text>& texts);

/// The texts of a group.
std::vector<Text> share_of(const std::vector<Text>& texts, const model::Layout& layout,
                           int data_rank);

/// Runs the layout as threads and expects on every rank the bits of one rank.
void expect_bits_of_one_rank(const ScoredModel& model, const model::Layout& layout,
                             const std::vector<Text>& texts);

/// Whether the logits are those of one rank for these texts, to the bit.
bool equals_one_rank(const std::vector<float>& logits, const ScoredModel& model,
                     const std::vector<Text>& texts);

}  // namespace tandem::ranks
