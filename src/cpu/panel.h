#pragma once

#include <cstdint>

#include "cpu/cpu_device.h"
#include "device/dtype.h"

/// The matrix micro-kernels. A panel is 64 columns of the right-hand matrix over its whole
/// contraction, laid out so that the kernel reads it as one stream:
///   f32   [k][64]
///   bf16  [k/2][64][2]   pairs of contraction steps side by side, odd k padded with zero
namespace tandem::cpu {

inline constexpr int64_t kPanelColumns = 64;
inline constexpr int kPanelRowsMax = 6;  ///< rows per call: what the registers hold

/// Bytes of a left-hand row or of one panel column over k contraction steps.
constexpr int64_t padded_k(DType dtype, int64_t k) {
  return dtype == DType::kBF16 ? (k + 1) / 2 * 2 : k;
}

/// tile[r][c] = sum over k of rows[r][k] * panel[k][c], c in [0, 64), from zero, in f32, k (pairs
/// of k) ascending with one accumulator per element: a row's result does not depend on rows_count.
/// `rows[r]` points at `k` elements of the panel's dtype, padded as the panel is.
using PanelKernel = void (*)(const void* const* rows, int rows_count, const void* panel, int64_t k,
                             float* tile);

/// The kernel of a path for kF32 or kBF16 panels.
PanelKernel panel_kernel(MatrixPath path, DType dtype);

/// For any number of rows: calls store(row, sums [64]) for each. `row_at(r)` points at row r.
template <typename RowAt, typename Store>
void multiply_panel(PanelKernel kernel, int64_t rows_count, const void* panel, int64_t k,
                    RowAt row_at, Store store) {
  alignas(64) float tile[kPanelRowsMax * kPanelColumns];
  const void* rows[kPanelRowsMax];
  for (int64_t first = 0; first < rows_count; first += kPanelRowsMax) {
    const int64_t left = rows_count - first;
    const int count = left < kPanelRowsMax ? static_cast<int>(left) : kPanelRowsMax;
    for (int r = 0; r < count; ++r) rows[r] = row_at(first + r);
    kernel(rows, count, panel, k, tile);
    for (int r = 0; r < count; ++r) store(first + r, tile + r * kPanelColumns);
  }
}

namespace internal {
void panel_avx512_bf16(const void* const* rows, int rows_count, const void* panel, int64_t k,
                       float* tile);
}

}  // namespace tandem::cpu
