#include "tests/ranks/run_layout.h"

#include <gtest/gtest.h>

#include <cstring>

#include "comm/testing/run_ranks.h"

namespace tandem::ranks {

std::vector<Text> share_of(const std::vector<Text>& texts, const model::Layout& layout,
                           int data_rank) {
  std::vector<Text> share;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i % static_cast<size_t>(layout.data_parallel) == static_cast<size_t>(data_rank)) {
      share.push_back(texts[i]);
    }
  }
  return share;
}

Result<std::vector<float>> score_share(const ScoredModel& model, const model::Layout& layout,
                                       int rank, comm::SymmetricHeap* heap,
                                       const std::vector<Text>& texts) {
  const auto scorer = TANDEM_TRY(RankScorer::create(model, layout, rank, heap));
  const int own = scorer->shard().data_rank();
  const auto end_of = [&](int data_rank) {
    return data_rank + RankScorer::steps_of(share_of(texts, layout, data_rank));
  };
  int steps = 0;
  for (int data_rank = 0; data_rank < layout.data_parallel; ++data_rank) {
    steps = std::max(steps, end_of(data_rank));
  }
  TANDEM_TRY(scorer->join(own));
  auto logits = TANDEM_TRY(scorer->score(share_of(texts, layout, own)));
  TANDEM_TRY(scorer->join(steps - end_of(own)));
  return logits;
}

bool equals_one_rank(const std::vector<float>& logits, const ScoredModel& model,
                     const std::vector<Text>& texts) {
  const auto expected = score_share(model, {}, 0, nullptr, texts).value();
  return logits.size() == expected.size() &&
         std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)) == 0;
}

void expect_bits_of_one_rank(const ScoredModel& model, const model::Layout& layout,
                             const std::vector<Text>& texts) {
  SCOPED_TRACE("TP" + std::to_string(layout.tensor_parallel) + " x DP" +
               std::to_string(layout.data_parallel) + " " + dtype_name(model.compute));
  std::vector<std::vector<float>> logits(static_cast<size_t>(layout.ranks_count()));
  comm::expect_ranks(layout.ranks_count(), RankScorer::heap_bytes(model, layout),
                     [&](comm::SymmetricHeap& heap) -> Result<void> {
                       logits[static_cast<size_t>(heap.rank())] =
                           TANDEM_TRY(score_share(model, layout, heap.rank(), &heap, texts));
                       return {};
                     });
  for (int rank = 0; rank < layout.ranks_count(); ++rank) {
    const auto share = share_of(texts, layout, rank / layout.tensor_parallel);
    EXPECT_TRUE(equals_one_rank(logits[static_cast<size_t>(rank)], model, share))
        << "rank " << rank;
  }
}

}  // namespace tandem::ranks
