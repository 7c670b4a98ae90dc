// Goal: the nats per token that `tandem eval` reports are those of transformers in f32.
// Method: every text of validation.json alone, nothing added, first token unscored; token counts
// and the mean of each group against transformers' figures.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/parity/test_checkpoint.h"
#include "tests/parity/validation_texts.h"

namespace tandem::parity {
namespace {

constexpr uint32_t kLengthMax = 2048;
constexpr double kMeanDifferenceMax = 1e-4;

struct Figures {
  double mean = 0;    // what training reported, in nats per token
  double within = 0;  // of it
  int tokens = 0;
};

class LongEval : public ::testing::Test {
 protected:
  LongEval()
      : texts_(ValidationTexts::open().value()),
        golden_(GoldenFile::open(kGolden + "tiny-moe/eval.safetensors").value()),
        checkpoint_(TestCheckpoint::load(kTinyMoe, DType::kF32, kLengthMax).value()) {}

  double nats(const std::vector<TokenId>& tokens) {
    double sum = 0;
    const auto visit = [&](size_t position, std::span<const float> logits) {
      if (position + 1 < tokens.size()) sum += engine::nats_of(logits, tokens[position + 1]);
    };
    checkpoint_.scorer->score(tokens, visit).value();
    return sum;
  }

  void expect_equal(const std::string& group, const std::vector<std::string>& texts,
                    const Figures& trained) {
    const std::vector<double> expected = golden_.doubles(group + "_nats");
    const std::vector<int32_t> counts = golden_.integers(group + "_tokens");
    ASSERT_EQ(texts.size(), expected.size());
    double ours = 0;
    double theirs = 0;
    int count = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::vector<TokenId> tokens = texts_.tokens_of(texts[i]);
      ASSERT_EQ(tokens.size(), static_cast<size_t>(counts[i]) + 1) << group << " " << i;
      const double sum = nats(tokens);
      EXPECT_NEAR(sum / counts[i], expected[i] / counts[i], kMeanDifferenceMax)
          << group << " " << i;
      ours += sum;
      theirs += expected[i];
      count += counts[i];
    }
    printf("%s: %.6f nats per token, transformers %.6f, over %d tokens\n", group.c_str(),
           ours / count, theirs / count, count);
    EXPECT_NEAR(ours / count, theirs / count, kMeanDifferenceMax);
    EXPECT_NEAR(ours / count, trained.mean, trained.within);
    EXPECT_EQ(count, trained.tokens);
  }

  const ValidationTexts texts_;
  const GoldenFile golden_;
  TestCheckpoint checkpoint_;
};

TEST_F(LongEval, ChatsHaveTheNatsOfTransformers) {
  expect_equal("chat", texts_.chat, {.mean = 0.499, .within = 0.002, .tokens = 25581});
}

TEST_F(LongEval, ProseHasTheNatsOfTransformers) {
  expect_equal("prose", texts_.prose, {.mean = 1.955, .within = 0.005, .tokens = 15478});
}

}  // namespace
}  // namespace tandem::parity
