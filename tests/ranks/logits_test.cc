// Goal: a model spread over ranks gives the bits of one rank. Method: every rank is a thread and
// scores its group's texts, of different lengths and starting at different steps, so that ranks
// also compute with more, fewer and no tokens; all logits are compared with those of one rank.
#include <gtest/gtest.h>

#include "tests/parity/validation_texts.h"
#include "tests/ranks/run_layout.h"
#include "tests/ranks/test_models.h"

namespace tandem::ranks {
namespace {

constexpr model::Layout tp(int ranks) {
  return {.tensor_parallel = ranks};
}
constexpr model::Layout dp(int ranks) {
  return {.data_parallel = ranks};
}

void expect_all(const ScoredModel& model, const std::vector<model::Layout>& layouts) {
  const Scored expected =
      score_on_one_rank(model, random_texts({1, 50, 7, 97, 23}, model.config.vocab_size, 5));
  for (const model::Layout& layout : layouts) expect_bits_of_one_rank(model, layout, expected);
}

TEST(Logits, TensorParallelTinyMoe) {
  for (DType compute : {DType::kF32, DType::kBF16}) {
    expect_all(tiny_moe(compute), {tp(1), tp(2), tp(4), tp(8)});
  }
}

TEST(Logits, DataParallelTinyMoe) {
  for (DType compute : {DType::kF32, DType::kBF16}) {
    expect_all(tiny_moe(compute), {dp(2), dp(4), dp(8), dp(16)});
  }
}

TEST(Logits, TensorParallelInsideDataParallel) {
  for (DType compute : {DType::kF32, DType::kBF16}) {
    expect_all(tiny_moe(compute), {{2, 2}, {4, 2}, {2, 3}});
  }
}

TEST(Logits, UnevenExperts) {
  for (DType compute : {DType::kF32, DType::kBF16}) {
    expect_all(random_model({.experts = 30}, compute), {tp(8), dp(8), {4, 2}});
    expect_all(random_model({.experts = 128, .experts_per_token = 8}, compute), {dp(12), {4, 3}});
  }
}

TEST(Logits, DenseLayersAndOddShapes) {
  for (DType compute : {DType::kF32, DType::kBF16}) {
    // 14 partial sums as 8, 6 and 4, 4, 4, 2, the last one short; 301 rows of vocabulary.
    expect_all(random_model({.dense_columns = 1700, .tied = true}, compute),
               {tp(2), tp(4), {2, 2}});
    // Three ranks with four heads each.
    expect_all(random_model({.heads = 12, .kv_heads = 6, .experts = 5}, compute), {tp(3)});
    // No experts at all.
    expect_all(random_model({.experts = 0, .dense_columns = 1024}, compute), {tp(4), dp(2)});
  }
}

TEST(Logits, CopiesOfExperts) {
  for (DType compute : {DType::kF32, DType::kBF16}) {
    expect_all(tiny_moe(compute), {{2, 1, 4}, {1, 2, 4}, {1, 4, 4}, {2, 2, 4}});
    // More ranks than experts; every expert on every rank.
    expect_all(random_model({.experts = 5, .experts_per_token = 2}, compute),
               {{1, 8, 3}, {4, 1, 15}});
  }
}

TEST(Logits, ExpertsThatChangeTheirRankAtEveryStep) {
  for (DType compute : {DType::kF32, DType::kBF16}) {
    for (int redundant : {0, 4}) {
      expect_all(tiny_moe(compute), {{2, 1, redundant, true},
                                     {1, 2, redundant, true},
                                     {1, 4, redundant, true},
                                     {2, 2, redundant, true}});
    }
    expect_all(random_model({.experts = 30}, compute), {{4, 2, 5, true}});
    expect_all(random_model({.experts = 16, .dense_columns = 1024}, compute), {{2, 2, 3, true}});
  }
}

/// Every validation text of tiny-moe: minutes, so a slow test.
TEST(LongLogits, AllValidationTexts) {
  const auto validation = parity::ValidationTexts::open().value();
  std::vector<Text> texts;
  for (const auto* kind : {&validation.chat, &validation.prose}) {
    for (const std::string& text : *kind) texts.push_back(validation.tokens_of(text));
  }
  for (Text& text : texts) text.resize(std::min<size_t>(text.size(), RankScorer::kLengthMax));
  ASSERT_GE(texts.size(), 200u);
  for (DType compute : {DType::kF32, DType::kBF16}) {
    const ScoredModel model = tiny_moe(compute);
    const Scored expected = score_on_one_rank(model, texts);
    for (const model::Layout& layout : {tp(2), tp(4), tp(8), dp(2), dp(4), dp(8), dp(16),
                                        model::Layout{2, 2}, model::Layout{1, 4, 4, true}}) {
      expect_bits_of_one_rank(model, layout, expected);
    }
  }
}

}  // namespace
}  // namespace tandem::ranks
