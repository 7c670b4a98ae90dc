#include "tests/ranks/run_layout.h"

#include <gtest/gtest.h>

#include "comm/testing/run_ranks.h"

namespace tandem::ranks {

Scored Scored::share(const model::Layout& layout, int data_rank) const {
  Scored own;
  for (size_t i = static_cast<size_t>(data_rank); i < texts.size();
       i += static_cast<size_t>(layout.data_parallel)) {
    own.texts.push_back(texts[i]);
    own.digests.push_back(digests[i]);
  }
  return own;
}

Scored score_on_one_rank(const ScoredModel& model, const std::vector<Text>& texts) {
  const auto scorer = RankScorer::create(model, {}, 0, nullptr).value();
  return {texts, scorer->score(texts).value()};
}

Result<void> compare_rank(const ScoredModel& model, const model::Layout& layout, int rank,
                          comm::SymmetricHeap* heap, const Scored& expected) {
  const auto scorer = TANDEM_TRY(RankScorer::create(model, layout, rank, heap));
  const int data_rank = scorer->shard().data_rank();
  const auto end_of = [&](int group) {
    return group + RankScorer::steps_of(expected.share(layout, group).texts);
  };
  int steps = 0;
  for (int group = 0; group < layout.data_parallel; ++group) {
    steps = std::max(steps, end_of(group));
  }
  const Scored own = expected.share(layout, data_rank);
  TANDEM_TRY(scorer->join(data_rank));
  const auto digests = TANDEM_TRY(scorer->score(own.texts));
  TANDEM_TRY(scorer->join(steps - end_of(data_rank)));
  if (layout.rebalances_experts && scorer->moves_count() < steps) {
    return make_error(Code::kInternal, "experts stayed where they were");
  }
  for (size_t i = 0; i < digests.size(); ++i) {
    if (digests[i] == own.digests[i]) continue;
    return make_error(Code::kInternal, "rank " + std::to_string(rank) + " has other bits for its " +
                                           "text " + std::to_string(i));
  }
  return {};
}

void expect_bits_of_one_rank(const ScoredModel& model, const model::Layout& layout,
                             const Scored& expected) {
  SCOPED_TRACE("TP" + std::to_string(layout.tensor_parallel) + " x DP" +
               std::to_string(layout.data_parallel) + " " + dtype_name(model.compute));
  comm::expect_ranks(layout.ranks_count(), RankScorer::heap_bytes(model, layout),
                     [&](comm::SymmetricHeap& heap) {
                       return compare_rank(model, layout, heap.rank(), &heap, expected);
                     });
}

}  // namespace tandem::ranks
