// Goal: every row primitive equals its formula, at every tail length, and writes nothing outside.
// Method: random rows of 1 to 200 elements against double precision; guard elements on both sides.
#include "cpu/vector.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tandem::cpu {
namespace {

constexpr float kGuard = 12345.0f;

struct Row {
  explicit Row(int64_t n) : storage(static_cast<size_t>(n) + 2, kGuard) {}
  float* data() { return storage.data() + 1; }
  bool guards_intact() const { return storage.front() == kGuard && storage.back() == kGuard; }
  std::vector<float> storage;
};

class Vector : public ::testing::Test {
 protected:
  std::vector<float> random(int64_t n, float spread = 1.0f) {
    std::normal_distribution<float> normal(0.0f, spread);
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) v = normal(generator_);
    return x;
  }
  std::mt19937 generator_{7};
};

TEST_F(Vector, EveryLengthEqualsTheFormula) {
  for (int64_t n = 1; n <= 200; ++n) {
    const auto x = random(n), y = random(n), w = random(n);
    const auto size = static_cast<size_t>(n);
    double squares = 0.0, largest = -1e30;
    for (float v : x) {
      squares += double{v} * v;
      largest = std::max<double>(largest, v);
    }
    // n rounded additions of positive terms: relative error below n * epsilon.
    EXPECT_NEAR(sum_of_squares(x.data(), n), squares, squares * 1e-7 * static_cast<double>(n));
    EXPECT_EQ(max_value(x.data(), n), static_cast<float>(largest));

    Row out(n);
    scale_row(out.data(), x.data(), 0.7f, w.data(), n);
    for (size_t i = 0; i < size; ++i) EXPECT_EQ(out.data()[i], x[i] * 0.7f * w[i]);
    scale(out.data(), x.data(), 0.3f, n);
    for (size_t i = 0; i < size; ++i) EXPECT_EQ(out.data()[i], x[i] * 0.3f);
    std::copy(y.begin(), y.end(), out.data());
    add(out.data(), x.data(), n);
    for (size_t i = 0; i < size; ++i) EXPECT_EQ(out.data()[i], y[i] + x[i]);
    add(out.data(), x.data(), w.data(), n);
    for (size_t i = 0; i < size; ++i) EXPECT_EQ(out.data()[i], x[i] + w[i]);
    std::vector<bf16> coarse(size);
    to_bf16(coarse.data(), x.data(), n);
    scale(out.data(), coarse.data(), 0.3f, n);
    for (size_t i = 0; i < size; ++i) {
      EXPECT_EQ(out.data()[i], tandem::to_float(coarse[i]) * 0.3f);
    }
    round_to_bf16(out.data(), x.data(), n);
    for (size_t i = 0; i < size; ++i) {
      EXPECT_EQ(out.data()[i], tandem::to_float(tandem::to_bf16(x[i])));
    }
    EXPECT_TRUE(out.guards_intact());

    std::vector<bf16> halves(size + 1, bf16{0x1234});
    to_bf16(halves.data(), x.data(), n);
    EXPECT_EQ(halves.back().bits, 0x1234);
    to_float(out.data(), halves.data(), n);
    for (size_t i = 0; i < size; ++i) {
      EXPECT_EQ(halves[i].bits, tandem::to_bf16(x[i]).bits);
      EXPECT_EQ(out.data()[i], tandem::to_float(halves[i]));
    }
    EXPECT_TRUE(out.guards_intact());
  }
}

TEST_F(Vector, ExponentialsAreAccurateToTwoUlp) {
  for (int64_t n : {1, 3, 16, 100, 1000}) {
    const auto x = random(n, 20.0f);
    Row out(n);
    const float sum = exp_shifted(out.data(), x.data(), 3.0f, n);
    double expected_sum = 0.0;
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      const double expected = std::exp(double{x[i] - 3.0f});
      expected_sum += expected;
      EXPECT_NEAR(out.data()[i], expected, 3e-7 * expected + 1e-38);
    }
    EXPECT_NEAR(sum, expected_sum, 1e-6 * expected_sum);
    EXPECT_TRUE(out.guards_intact());

    const auto up = random(n);
    silu_mul(out.data(), x.data(), up.data(), n);
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      const double expected = double{x[i]} / (1.0 + std::exp(-double{x[i]})) * double{up[i]};
      EXPECT_NEAR(out.data()[i], expected, 1e-6 * std::abs(expected) + 1e-30);
    }
  }
}

TEST_F(Vector, ExtremesAreExact) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> x{-kInf, 0.0f, -200.0f};
  EXPECT_EQ(exp_shifted(x.data(), x.data(), 0.0f, 3), 1.0f);
  EXPECT_EQ(x, (std::vector<float>{0.0f, 1.0f, 0.0f}));
  float bad[] = {0.0f, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_TRUE(std::isnan(exp_shifted(bad, bad, 0.0f, 2)));
  EXPECT_EQ(bad[0], 1.0f);
  EXPECT_TRUE(std::isnan(bad[1]));
  const float gate[] = {-1e4f, 1e4f, -1e36f};
  const float up[] = {1.0f, 2.0f, 3.0f};
  float out[3];
  silu_mul(out, gate, up, 3);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], 2e4f);
  EXPECT_EQ(out[2], 0.0f);
}

TEST_F(Vector, RotationTurnsHalfSplitPairs) {
  for (int64_t half : {1, 4, 16, 33, 64}) {
    auto x = random(2 * half);
    const auto before = x;
    const auto cos = random(half), sin = random(half);
    rotate_pairs(x.data(), cos.data(), sin.data(), half);
    for (size_t i = 0; i < static_cast<size_t>(half); ++i) {
      const float a = before[i], b = before[static_cast<size_t>(half) + i];
      EXPECT_EQ(x[i], a * cos[i] - b * sin[i]);
      EXPECT_EQ(x[static_cast<size_t>(half) + i], b * cos[i] + a * sin[i]);
    }
  }
}

}  // namespace
}  // namespace tandem::cpu
