#pragma once

#include <algorithm>
#include <cstring>

#include "cpu/cpu_device.h"
#include "cpu/panel.h"
#include "cpu/vector.h"
#include "device/tensor.h"
#include "ops/linear/panel_layout.h"

namespace tandem::ops {

// The layout is written where cpu/ cannot be seen, and read by its kernels.
static_assert(PanelLayout::kColumns == cpu::kPanelColumns);

/// The left-hand rows of a product as the panel kernels read them: x itself where it can be used
/// in place, else a copy in scratch, gathered and rounded to the dtype of the panels.
class LeftRows {
 public:
  struct Source {
    TensorView<const float, 2> x;
    TensorView<const int32_t, 1> rows{};  ///< [rows] indices into x; none: x row by row
    int64_t count() const { return rows.data == nullptr ? x.shape[0] : rows.shape[0]; }
    const float* row(int64_t r) const { return x.row(rows.data == nullptr ? r : rows[r]); }
  };

  static size_t scratch_bytes(DType dtype, const Source& source) {
    return in_place(dtype, source)
               ? 0
               : static_cast<size_t>(source.count() * stride_bytes(dtype, source));
  }
  /// Fills `scratch` with the team where it is needed.
  LeftRows(cpu::CpuStream& stream, DType dtype, const Source& source, std::byte* scratch)
      : element_bytes_(static_cast<int64_t>(dtype_bytes(dtype))) {
    if (in_place(dtype, source)) {
      rows_ = {source.x.data, source.x.row_stride * element_bytes_};
      return;
    }
    rows_ = {scratch, stride_bytes(dtype, source)};
    constexpr int64_t kRowsPerTask = 8;
    const int64_t count = source.count();
    stream.team().parallel_for((count + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
      for (int64_t r = task * kRowsPerTask; r < std::min(count, (task + 1) * kRowsPerTask); ++r) {
        fill(dtype, scratch + r * rows_.stride_bytes, source.row(r), source.x.shape[1]);
      }
    });
  }
  /// Rows from `r` on, from contraction step `k` on (even when rounded).
  cpu::PanelRows at(int64_t r, int64_t k = 0) const {
    return {rows_.row(r) + k * element_bytes_, rows_.stride_bytes};
  }

 private:
  static bool in_place(DType dtype, const Source& source) {
    return dtype == DType::kF32 && source.rows.data == nullptr;
  }
  /// An odd number of cache lines: rows a power of two apart would all fall into one set.
  static int64_t stride_bytes(DType dtype, const Source& source) {
    const int64_t bytes =
        cpu::padded_k(dtype, source.x.shape[1]) * static_cast<int64_t>(dtype_bytes(dtype));
    return ((bytes + 63) / 64 | 1) * 64;
  }
  static void fill(DType dtype, std::byte* at, const float* x, int64_t k) {
    if (dtype == DType::kF32) {
      std::memcpy(at, x, static_cast<size_t>(k) * sizeof(float));
      return;
    }
    auto* out = reinterpret_cast<bf16*>(at);
    cpu::to_bf16(out, x, k);
    if (k % 2 != 0) out[k] = bf16{0};
  }

  int64_t element_bytes_;
  cpu::PanelRows rows_;
};

}  // namespace tandem::ops
