#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cpu/cpu_device.h"
#include "device/dtype.h"

/// The matrix micro-kernels. A panel is 64 columns of the right-hand matrix over its whole
/// contraction, laid out so that the kernel reads it as one stream:
///   f32   [k][64]
///   bf16  [k/2][64][2]   pairs of contraction steps side by side, odd k padded with zero
namespace tandem::cpu {

inline constexpr int64_t kPanelColumns = 64;
inline constexpr int kPanelRowsMax = 32;  ///< rows per call of any kernel

/// Elements that k contraction steps take in a left-hand row or a panel column: bf16 go in pairs.
constexpr int64_t padded_k(DType dtype, int64_t k) {
  return dtype == DType::kBF16 ? (k + 1) / 2 * 2 : k;
}

/// Left-hand rows: `k` elements of the panel's dtype each, padded as the panel is.
struct PanelRows {
  const void* data;
  int64_t stride_bytes;

  template <typename T = std::byte>
  const T* row(int64_t r) const {
    return reinterpret_cast<const T*>(static_cast<const std::byte*>(data) + r * stride_bytes);
  }
  PanelRows from(int64_t r) const { return {row(r), stride_bytes}; }
};

/// A matrix micro-kernel: tile[r][c] = sum over k of rows[r][k] * panel[k][c], c in [0, 64), from
/// zero, in f32, k (pairs of k) ascending with one accumulator per element: a row's result does not
/// depend on rows_count.
struct PanelKernel {
  void (*run)(PanelRows rows, int rows_count, const void* panel, int64_t k, float* tile);
  int rows_max;  ///< rows_count of one call: what the registers hold, <= kPanelRowsMax
};

/// The kernel of a path for kF32 or kBF16 panels.
PanelKernel panel_kernel(MatrixPath path, DType dtype);

/// Where a panel's sums go: `columns` <= 64 of row-major f32 rows.
struct PanelOutput {
  float* data;
  int64_t row_stride;  ///< in floats
  int64_t columns;
  bool accumulate = false;  ///< add to what is there

  PanelOutput from(int64_t r) const {
    return {data + r * row_stride, row_stride, columns, accumulate};
  }
  /// Asks for rows [first, first + count) for writing. Another core wrote them last, or they are in
  /// memory: stores that wait for them line by line would cost as much as the sums.
  void prefetch(int64_t first, int64_t count) const {
    for (int64_t r = first; r < first + count; ++r) {
      for (int64_t c = 0; c < columns; c += 16) __builtin_prefetch(data + r * row_stride + c, 1);
    }
  }
  void operator()(int64_t r, const float* sums) const {
    float* out = data + r * row_stride;
    if (accumulate) {
      for (int64_t c = 0; c < columns; ++c) out[c] += sums[c];
    } else {
      std::copy_n(sums, columns, out);
    }
  }
};

/// For any number of rows: calls store(r, sums [64]) for each row r. `store` is a PanelOutput or
/// keeps the sums at hand.
template <typename Store>
void multiply_panel(PanelKernel kernel, PanelRows rows, int64_t rows_count, const void* panel,
                    int64_t k, Store store) {
  alignas(64) float tile[kPanelRowsMax * kPanelColumns];
  for (int64_t first = 0; first < rows_count; first += kernel.rows_max) {
    const auto count = static_cast<int>(std::min<int64_t>(rows_count - first, kernel.rows_max));
    if constexpr (std::is_same_v<Store, PanelOutput>) store.prefetch(first, count);
    kernel.run(rows.from(first), count, panel, k, tile);
    for (int r = 0; r < count; ++r) store(first + r, tile + r * kPanelColumns);
  }
}

namespace internal {
void panel_avx512_bf16(PanelRows rows, int rows_count, const void* panel, int64_t k, float* tile);
void panel_amx_bf16(PanelRows rows, int rows_count, const void* panel, int64_t k, float* tile);
inline constexpr int kVectorRowsMax = 6;  // rows x 4 vectors of sums fit 32 registers
inline constexpr int kAmxRowsMax = 32;    // two tiles of 16
}  // namespace internal

}  // namespace tandem::cpu
