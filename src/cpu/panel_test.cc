// Goal: each matrix path computes the panel product, and a row's bits do not depend on its
// neighbours. Method: random operands, float64 sums, a bound from epsilon, length and norms.
#include "cpu/panel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace tandem::cpu {
namespace {

/// Operands of one product as floats, and in the layout the kernels read.
struct Operands {
  Operands(DType dtype, int64_t k, int rows_count) {
    std::mt19937 generator(static_cast<unsigned>(k * 10 + rows_count));
    std::normal_distribution<float> normal;
    const int64_t kp = padded_k(dtype, k);
    const size_t element = dtype_bytes(dtype);
    panel_bytes.resize(static_cast<size_t>(kp * kPanelColumns) * element);
    x.assign(static_cast<size_t>(rows_count), std::vector<float>(static_cast<size_t>(k)));
    w.assign(static_cast<size_t>(k), std::vector<float>(kPanelColumns));
    const auto put = [&](std::byte* at, float& value) {
      const bf16 half = to_bf16(value);
      if (dtype == DType::kBF16) value = to_float(half);
      std::memcpy(at, dtype == DType::kBF16 ? static_cast<const void*>(&half) : &value, element);
    };
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t c = 0; c < kPanelColumns; ++c) {
        float& value = w[static_cast<size_t>(i)][static_cast<size_t>(c)];
        value = normal(generator);
        const int64_t at =
            dtype == DType::kF32 ? i * kPanelColumns + c : (i / 2 * kPanelColumns + c) * 2 + i % 2;
        put(panel_bytes.data() + static_cast<size_t>(at) * element, value);
      }
    }
    row_bytes.resize(static_cast<size_t>(kp * rows_count) * element);
    rows = {row_bytes.data(), kp * static_cast<int64_t>(element)};
    for (size_t r = 0; r < x.size(); ++r) {
      for (size_t i = 0; i < static_cast<size_t>(k); ++i) {
        x[r][i] = normal(generator);
        put(row_bytes.data() + (r * static_cast<size_t>(kp) + i) * element, x[r][i]);
      }
    }
  }
  std::vector<std::vector<float>> x;  // [rows][k]
  std::vector<std::vector<float>> w;  // [k][64]
  std::vector<std::byte> panel_bytes;
  std::vector<std::byte> row_bytes;
  PanelRows rows;
};

TEST(Panel, EqualsTheSumAndIgnoresNeighbours) {
  for (MatrixPath path : usable_matrix_paths()) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      const PanelKernel kernel = panel_kernel(path, dtype);
      for (int64_t k : {1, 2, 3, 31, 32, 64, 127, 768, 1050}) {
        for (int count = 1; count <= kernel.rows_max; ++count) {
          const Operands o(dtype, k, count);
          std::vector<float> tile(static_cast<size_t>(count) * kPanelColumns, NAN);
          kernel.run(o.rows, count, o.panel_bytes.data(), k, tile.data());
          for (int r = 0; r < count; ++r) {
            float alone[kPanelColumns];
            kernel.run(o.rows.from(r), 1, o.panel_bytes.data(), k, alone);
            EXPECT_EQ(
                0, std::memcmp(alone, &tile[static_cast<size_t>(r) * kPanelColumns], sizeof alone));
            for (size_t c = 0; c < kPanelColumns; ++c) {
              double sum = 0.0, magnitude = 0.0;
              for (size_t i = 0; i < static_cast<size_t>(k); ++i) {
                const double term = double{o.x[static_cast<size_t>(r)][i]} * o.w[i][c];
                sum += term;
                magnitude += std::abs(term);
              }
              const double bound =
                  static_cast<double>(k + 1) * magnitude * std::numeric_limits<float>::epsilon();
              ASSERT_NEAR(alone[c], sum, bound) << matrix_path_name(path) << " k " << k;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::cpu
