// Goal: rotary tables equal those of transformers for every supported scaling.
// Method: frequencies and sampled entries asked of transformers' own module (rope_golden.inc) for
// configs that go through parse_config. Frequencies may differ by one unit in the last place,
// because torch's powf is not correctly rounded; where they are equal, entries may differ by the
// rounding of cosine and scale only.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "model/config.h"

namespace tandem::model {
namespace {

struct GoldenRope {
  const char* name;
  const char* config;
  std::vector<float> frequencies;  // [pairs]
  std::vector<float> samples;      // [positions, cos and sin, 5 pairs]
};

constexpr int64_t kPositions[] = {0, 1, 7, 999, 8191, 131071};
#include "model/rope_golden.inc"

constexpr float kEpsilon = std::numeric_limits<float>::epsilon();

class GoldenRopes : public testing::TestWithParam<GoldenRope> {};

TEST_P(GoldenRopes, FrequenciesEqualTransformers) {
  const RopeConfig rope = parse_config(GetParam().config).value().rope;
  const std::vector<float> frequencies = make_inverse_frequencies(rope);
  ASSERT_EQ(frequencies.size(), GetParam().frequencies.size());
  int different = 0;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float expected = GetParam().frequencies[i];
    EXPECT_NEAR(frequencies[i], expected, expected * kEpsilon) << "pair " << i;
    different += frequencies[i] != expected ? 1 : 0;
  }
  EXPECT_LE(different, 2);
}

TEST_P(GoldenRopes, TableEqualsTransformers) {
  const RopeConfig rope = parse_config(GetParam().config).value().rope;
  const std::vector<float> frequencies = make_inverse_frequencies(rope);
  const size_t pairs = frequencies.size();
  const std::vector<float> table = make_rope_table(rope, 131072);
  ASSERT_EQ(table.size(), 131072 * 2 * pairs);

  size_t sample = 0;
  int compared = 0;
  for (int64_t position : kPositions) {
    for (size_t half : {size_t{0}, pairs}) {
      for (size_t pair : {size_t{0}, size_t{1}, pairs / 4, pairs / 2, pairs - 1}) {
        const float expected = GetParam().samples[sample++];
        if (frequencies[pair] != GetParam().frequencies[pair]) continue;
        const size_t index = static_cast<size_t>(position) * 2 * pairs + half + pair;
        EXPECT_NEAR(table[index], expected, 2 * kEpsilon * std::abs(rope.attention_factor))
            << "position " << position << " pair " << pair << (half == 0 ? " cos" : " sin");
        ++compared;
      }
    }
  }
  EXPECT_EQ(sample, GetParam().samples.size());
  EXPECT_GE(compared, 40);
}

INSTANTIATE_TEST_SUITE_P(Rope, GoldenRopes, testing::ValuesIn(kGoldenRopes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Rope, PositionZeroTurnsNothing) {
  RopeConfig rope;
  rope.theta = 1e6;
  rope.rotary_dim = 8;
  EXPECT_EQ(make_rope_table(rope, 1), (std::vector<float>{1, 1, 1, 1, 0, 0, 0, 0}));
  EXPECT_TRUE(make_rope_table(rope, 0).empty());
}

TEST(Rope, AttentionFactorScalesCosinesAndSines) {
  RopeConfig rope;
  rope.theta = 1e4;
  rope.rotary_dim = 4;
  const std::vector<float> plain = make_rope_table(rope, 3);
  rope.attention_factor = 2;
  const std::vector<float> scaled = make_rope_table(rope, 3);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(scaled[i], 2 * plain[i]);
}

}  // namespace
}  // namespace tandem::model
