// Goal: rms_norm equals x / sqrt(mean(x^2) + eps) * weight (rms_norm.h), in place too, and a row's
// bits are its own.
// Method: float64 from the formula, on every vector set. The sum of n squares has at most n + 1
// roundings, all terms positive; the mean and eps add two, the root halves them all and adds one,
// the reciprocal and two products three: (n + 1 + 2) / 2 + 4 < n / 2 + 6 roundings of the result.
#include "ops/rms_norm/rms_norm.h"

#include "ops/testing/ops_test_support.h"

namespace tandem::ops {
namespace {

using namespace testing;

struct Case {
  int64_t tokens, hidden;
  float spread, eps;
};

void expect_formula(const Case& c, cpu::MatrixPath path, Random& random) {
  SCOPED_TRACE(std::to_string(c.tokens) + " x " + std::to_string(c.hidden));
  Cpu cpu(2, path);
  const Matrix<float> x(c.tokens, c.hidden, random.normal(c.tokens * c.hidden, c.spread));
  const auto weight = random.normal(c.hidden);
  Matrix<float> out(c.tokens, c.hidden);
  ASSERT_TRUE(rms_norm(*cpu.stream,
                       {.x = x.view(), .weight = view_of(weight), .eps = c.eps, .out = out.view()})
                  .ok());
  Matrix<float> in_place = x;
  ASSERT_TRUE(
      rms_norm(
          *cpu.stream,
          {.x = in_place.view(), .weight = view_of(weight), .eps = c.eps, .out = in_place.view()})
          .ok());
  EXPECT_TRUE(out.margins_untouched());
  EXPECT_TRUE(in_place.margins_untouched());

  const double roundings = static_cast<double>(c.hidden) / 2 + 6;
  for (int64_t t = 0; t < c.tokens; ++t) {
    double squares = 0.0;
    for (int64_t i = 0; i < c.hidden; ++i) squares += double{x.row(t)[i]} * x.row(t)[i];
    const double root = std::sqrt(squares / static_cast<double>(c.hidden) + double{c.eps});
    for (int64_t i = 0; i < c.hidden; ++i) {
      const double expected = x.row(t)[i] / root * weight[static_cast<size_t>(i)];
      ASSERT_NEAR(out.row(t)[i], expected, roundings * kRoundF32 * std::abs(expected))
          << "token " << t << " column " << i;
      ASSERT_EQ(in_place.row(t)[i], out.row(t)[i]);
    }
  }
}

TEST(RmsNorm, EqualsTheFormula) {
  Random random(21);
  for_each_path([&](cpu::MatrixPath path) {
    expect_formula({1, 1, 1.0f, 1e-6f}, path, random);
    expect_formula({1, 64, 1.0f, 1e-6f}, path, random);
    expect_formula({2, 7, 1e-3f, 1e-6f}, path, random);  // eps weighs as much as the mean
    expect_formula({33, 127, 30.0f, 1e-5f}, path, random);
    expect_formula({5, 1000, 1e-2f, 1e-5f}, path, random);
    expect_formula({3, 4096, 1.0f, 1e-6f}, path, random);
  });
}

TEST(RmsNorm, RowsStandAlone) {
  constexpr int64_t kTokens = 37, kHidden = 200;
  Random random(22);
  const Matrix<float> x(kTokens, kHidden, random.normal(kTokens * kHidden));
  const auto weight = random.normal(kHidden);
  expect_rows_stand_alone(kTokens, random, [&](Stream& stream, const Rows& rows) {
    Matrix<float> chosen = x.pick(rows);
    Matrix<float> out(chosen.rows(), kHidden);
    EXPECT_TRUE(
        rms_norm(stream, {.x = chosen.view(), .weight = view_of(weight), .out = out.view()}).ok());
    return out.bits();
  });
}

}  // namespace
}  // namespace tandem::ops
