// Goal: linear and expert_linear equal the product of the rounded operands, for every dtype, cut
// and matrix path, and a row has the same bits alone and among others.
// Method: random operands, float64 sums, bound = (length + parts) * epsilon * sum of magnitudes;
// outputs poisoned with NaN first.
#include "ops/linear/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "cpu/cpu_device.h"
#include "ops/expert_linear/expert_linear.h"

namespace tandem::ops {
namespace {

using View = TensorView<float, 2>;

float rounded(DType dtype, float x) {
  return dtype == DType::kBF16 ? to_float(to_bf16(x)) : x;
}

struct Case {
  cpu::MatrixPath path;
  DType dtype;
  int64_t tokens, out, in, partition;
};

class LinearTest : public ::testing::Test {
 protected:
  std::vector<float> random(int64_t n) {
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) v = normal(generator_);
    return x;
  }
  std::mt19937 generator_{11};
};

TEST_F(LinearTest, EqualsTheProductAndIgnoresNeighbours) {
  std::vector<Case> cases;
  for (cpu::MatrixPath path : cpu::usable_matrix_paths()) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      cases.push_back({path, dtype, 1, 64, 64, 0});
      cases.push_back({path, dtype, 7, 65, 33, 0});
      cases.push_back({path, dtype, 100, 130, 256, 64});
      cases.push_back({path, dtype, 5, 10, 360, 128});
    }
  }
  for (const Case& c : cases) {
    auto device = cpu::CpuDevice::create({.threads_count = 2, .path = c.path}).value();
    auto stream = device->make_stream().value();
    auto x = random(c.tokens * c.in);
    const auto w = random(c.out * c.in);
    auto packed = PackedLinear::create(*device, {.out_features = c.out,
                                                 .in_features = c.in,
                                                 .dtype = c.dtype,
                                                 .partition = c.partition})
                      .value();
    packed.set_rows(0, 0, {.data = w.data(), .dtype = DType::kF32, .rows = c.out});
    std::vector<float> y(static_cast<size_t>(c.tokens * c.out), NAN);
    const auto xv = View::make(x.data(), {c.tokens, c.in});
    const auto yv = View::make(y.data(), {c.tokens, c.out});
    ASSERT_TRUE(linear(*stream, {.x = xv, .weight = &packed, .y = yv}).ok());

    std::vector<float> alone(static_cast<size_t>(c.out), NAN);
    for (int64_t t = 0; t < c.tokens; ++t) {
      ASSERT_TRUE(linear(*stream, {.x = View::make(xv.row(t), {1, c.in}),
                                   .weight = &packed,
                                   .y = View::make(alone.data(), {1, c.out})})
                      .ok());
      ASSERT_EQ(0, std::memcmp(alone.data(), yv.row(t), alone.size() * sizeof(float)));
      for (int64_t o = 0; o < c.out; ++o) {
        double sum = 0.0, magnitude = 0.0;
        for (int64_t k = 0; k < c.in; ++k) {
          const double term = double{rounded(c.dtype, xv.row(t)[k])} *
                              rounded(c.dtype, w[static_cast<size_t>(o * c.in + k)]);
          sum += term;
          magnitude += std::abs(term);
        }
        const double bound =
            static_cast<double>(c.in + 16) * magnitude * std::numeric_limits<float>::epsilon();
        ASSERT_NEAR(yv.row(t)[o], sum, bound) << "token " << t << " output " << o;
      }
    }
    // Accumulation adds the finished sum once.
    const std::vector<float> before = y;
    ASSERT_TRUE(linear(*stream, {.x = xv, .weight = &packed, .y = yv, .accumulate = true}).ok());
    for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], before[i] + before[i]);
  }
}

TEST_F(LinearTest, ExpertsUseTheirOwnWeights) {
  constexpr int64_t kExperts = 5, kOut = 70, kIn = 32, kTokens = 9;
  auto device = cpu::CpuDevice::create({.threads_count = 2}).value();
  auto stream = device->make_stream().value();
  auto x = random(kTokens * kIn);
  const auto w = random(kExperts * kOut * kIn);
  auto stack =
      PackedLinear::create(*device, {.stack = kExperts, .out_features = kOut, .in_features = kIn})
          .value();
  const int32_t offsets[] = {0, 3, 3, 11, 12, 12};  // two experts without rows
  const int32_t sources[] = {8, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 2};
  constexpr int64_t kRows = 12;
  std::vector<float> y(kRows * kOut, NAN);
  const auto xv = View::make(x.data(), {kTokens, kIn});
  for (int64_t e = 0; e < kExperts; ++e) {
    stack.set_rows(
        e, 0,
        {.data = &w[static_cast<size_t>(e * kOut * kIn)], .dtype = DType::kF32, .rows = kOut});
  }
  ASSERT_TRUE(
      expert_linear(*stream,
                    {.x = xv,
                     .weights = &stack,
                     .row_source = TensorView<const int32_t, 1>::make(sources, {kRows}),
                     .expert_offsets = TensorView<const int32_t, 1>::make(offsets, {kExperts + 1}),
                     .y = View::make(y.data(), {kRows, kOut})})
          .ok());
  for (int64_t e = 0; e < kExperts; ++e) {
    auto single = PackedLinear::create(*device, {.out_features = kOut, .in_features = kIn}).value();
    single.set_rows(
        0, 0,
        {.data = &w[static_cast<size_t>(e * kOut * kIn)], .dtype = DType::kF32, .rows = kOut});
    for (int64_t r = offsets[e]; r < offsets[e + 1]; ++r) {
      std::vector<float> expected(kOut, NAN);
      ASSERT_TRUE(linear(*stream, {.x = View::make(xv.row(sources[r]), {1, kIn}),
                                   .weight = &single,
                                   .y = View::make(expected.data(), {1, kOut})})
                      .ok());
      EXPECT_EQ(
          0, std::memcmp(expected.data(), &y[static_cast<size_t>(r * kOut)], sizeof(float) * kOut));
    }
  }
}

}  // namespace
}  // namespace tandem::ops
