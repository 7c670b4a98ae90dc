// Goal: random weights are the same on every run, differ between tensors and seeds, and have the
// size that keeps a network's activations in range.
// Method: moments of whole tensors against their expectation within five standard errors.
#include "model/random_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace tandem::model {
namespace {

ModelConfig small_config() {
  return parse_config(R"({"model_type": "qwen3_moe", "rope_theta": 10000, "hidden_size": 256,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
      "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128,
      "intermediate_size": 512, "vocab_size": 512, "mlp_only_layers": [0]})")
      .value();
}

std::vector<float> values_of(RandomSource& source, const std::string& name) {
  const WeightView view = source.tensor(name).value();
  EXPECT_EQ(view.dtype, DType::kBF16);
  std::vector<float> values(view.bytes.size() / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    bf16 x;
    std::memcpy(&x, view.bytes.data() + 2 * i, 2);
    values[i] = to_float(x);
  }
  return values;
}

TEST(RandomSource, FitsItsConfig) {
  const ModelConfig config = small_config();
  RandomSource source(config, 1);
  EXPECT_TRUE(check_tensors(config, source).ok());
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    EXPECT_EQ(source.describe(expected.name)->shape, expected.shape);
    EXPECT_EQ(source.tensor(expected.name)->shape, expected.shape);
    source.release(expected.name);
  }
  EXPECT_EQ(source.tensor("absent").error().code, Code::kNotFound);
}

TEST(RandomSource, DependsOnSeedAndNameOnly) {
  const std::string name = "model.layers.1.mlp.experts.2.up_proj.weight";
  RandomSource first(small_config(), 7), second(small_config(), 7), other(small_config(), 8);
  values_of(second, "lm_head.weight");
  const std::vector<float> values = values_of(first, name);
  EXPECT_EQ(values, values_of(second, name));
  second.release(name);
  EXPECT_EQ(values, values_of(second, name));
  EXPECT_NE(values, values_of(other, name));
  EXPECT_NE(values, values_of(first, "model.layers.1.mlp.experts.2.gate_proj.weight"));
  EXPECT_NE(values, values_of(first, "model.layers.1.mlp.experts.3.up_proj.weight"));
}

TEST(RandomSource, RowsHaveNormOneAndNormsAreNearOne) {
  RandomSource source(small_config(), 3);
  for (const ExpectedTensor& expected : expected_tensors(small_config())) {
    const std::vector<float> values = values_of(source, expected.name);
    const bool is_norm = expected.shape.size() == 1;
    const double deviation =
        is_norm ? 0.1 : 1.0 / std::sqrt(static_cast<double>(expected.shape.back()));
    const double n = static_cast<double>(values.size());
    double sum = 0, squares = 0;
    for (float x : values) {
      const double centered = x - (is_norm ? 1.0 : 0.0);
      sum += centered;
      squares += centered * centered;
    }
    EXPECT_NEAR(sum / n, 0, 5 * deviation / std::sqrt(n)) << expected.name;
    // A uniform value's square has the deviation sqrt(4 / 5) of its mean.
    EXPECT_NEAR(squares / n / (deviation * deviation), 1, 5 * std::sqrt(0.8 / n) + 1e-3)
        << expected.name;
  }
}

}  // namespace
}  // namespace tandem::model
