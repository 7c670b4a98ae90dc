#pragma once

#include <vector>

#include "tests/ranks/rank_scorer.h"

namespace tandem::ranks {

/// The trained models/tiny-moe: 8 query heads, 4 KV heads, 16 experts.
ScoredModel tiny_moe(DType compute);

/// Small random models whose shapes tiny-moe does not have.
struct RandomShape {
  int64_t heads = 8;
  int64_t kv_heads = 4;
  int64_t experts = 16;
  int64_t experts_per_token = 4;
  int64_t dense_columns = 0;  ///< of every second layer; 0: all layers have experts
  int64_t vocabulary = 301;
  bool tied = false;
};
ScoredModel random_model(const RandomShape& shape, DType compute);

/// Texts of random tokens of the given lengths.
std::vector<Text> random_texts(const std::vector<int>& lengths, int64_t vocabulary, uint64_t seed);

}  // namespace tandem::ranks
