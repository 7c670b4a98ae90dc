// Goal: silu_mul equals gate / (1 + exp(-gate)) * up (silu_mul.h) for gates of every magnitude, a
// NaN stays one, and a row's bits are its own.
// Method: float64 from the formula, on every vector set. The exponential is off by 4 roundings and
// weighs at most 1 in the sum; the sum, the quotient and the product add one each: 7 roundings of
// the result. Below gates of -88 the quotient is smaller than 104 * exp(-88) = 2^-120, which is
// what an exponential limited to the range of f32 may miss.
#include "ops/silu_mul/silu_mul.h"

#include "ops/testing/ops_test_support.h"

namespace tandem::ops {
namespace {

using namespace testing;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Matrix<float> run(Stream& stream, const Matrix<float>& gate_up) {
  Matrix<float> out(gate_up.rows(), gate_up.columns() / 2);
  EXPECT_TRUE(silu_mul(stream, {.gate_up = gate_up.view(), .out = out.view()}).ok());
  EXPECT_TRUE(out.margins_untouched());
  return out;
}

void expect_formula(int64_t rows, int64_t width, float spread, cpu::MatrixPath path,
                    Random& random) {
  SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width));
  Cpu cpu(2, path);
  Matrix<float> gate_up(rows, 2 * width, random.normal(rows * 2 * width));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; ++i) gate_up.row(r)[i] *= spread;
  }
  const Matrix<float> out = run(*cpu.stream, gate_up);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; ++i) {
      const double gate = gate_up.row(r)[i], up = gate_up.row(r)[width + i];
      const double expected = gate / (1.0 + std::exp(-gate)) * up;
      const double bound = 7 * kRoundF32 * std::abs(expected) + 0x1p-120 * std::abs(up);
      ASSERT_NEAR(out.row(r)[i], expected, bound + kSmallestNormal)
          << "gate " << gate << " up " << up;
    }
  }
}

TEST(SiluMul, EqualsTheFormula) {
  Random random(31);
  for_each_path([&](cpu::MatrixPath path) {
    expect_formula(1, 1, 1.0f, path, random);
    expect_formula(3, 7, 4.0f, path, random);
    expect_formula(1, 768, 1.0f, path, random);
    expect_formula(33, 131, 10.0f, path, random);
    expect_formula(4, 500, 60.0f, path, random);  // around the limits of the exponential
    expect_formula(4, 100, 1e36f, path, random);  // far beyond them
    expect_formula(2, 100, 1e-30f, path, random);
  });
}

TEST(SiluMul, NaNStaysNaN) {
  for_each_path([](cpu::MatrixPath path) {
    Cpu cpu(1, path);
    const Matrix<float> gate_up(1, 6, {kNaN, 1.0f, 2.0f, 3.0f, kNaN, 4.0f});
    const Matrix<float> out = run(*cpu.stream, gate_up);
    EXPECT_TRUE(std::isnan(out.row(0)[0]));
    EXPECT_TRUE(std::isnan(out.row(0)[1]));
    EXPECT_FALSE(std::isnan(out.row(0)[2]));
  });
}

TEST(SiluMul, RowsStandAlone) {
  constexpr int64_t kRows = 37, kWidth = 101;
  Random random(32);
  const Matrix<float> gate_up(kRows, 2 * kWidth, random.normal(kRows * 2 * kWidth, 5.0f));
  expect_rows_stand_alone(kRows, random, [&](Stream& stream, const Rows& rows) {
    return run(stream, gate_up.pick(rows)).bits();
  });
}

}  // namespace
}  // namespace tandem::ops
