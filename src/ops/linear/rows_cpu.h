#pragma once

#include <cstring>

#include "cpu/cpu_device.h"
#include "cpu/panel.h"
#include "cpu/vector.h"
#include "device/tensor.h"

namespace tandem::ops {

/// The left-hand rows of a product in the dtype of its panels: for f32 x itself, for bf16 a rounded
/// copy in scratch, odd lengths padded with zero.
class PanelRows {
 public:
  static size_t scratch_bytes(DType dtype, int64_t rows, int64_t k) {
    return dtype == DType::kF32 ? 0 : static_cast<size_t>(rows * cpu::padded_k(dtype, k)) * 2;
  }
  /// Fills `scratch` with the team, unless the rows can be used where they are.
  PanelRows(cpu::CpuStream& stream, DType dtype, TensorView<const float, 2> x, std::byte* scratch)
      : x_(x), k_padded_(cpu::padded_k(dtype, x.shape[1])) {
    if (dtype == DType::kF32) return;
    halves_ = reinterpret_cast<bf16*>(scratch);
    constexpr int64_t kRowsPerTask = 8;
    const int64_t rows = x.shape[0];
    stream.team().parallel_for((rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
      for (int64_t r = task * kRowsPerTask; r < std::min(rows, (task + 1) * kRowsPerTask); ++r) {
        bf16* out = halves_ + r * k_padded_;
        cpu::to_bf16(out, x.row(r), x.shape[1]);
        if (k_padded_ != x.shape[1]) out[k_padded_ - 1] = bf16{0};
      }
    });
  }
  /// Row r from contraction step k on.
  const void* at(int64_t r, int64_t k) const {
    if (halves_ == nullptr) return x_.row(r) + k;
    return halves_ + r * k_padded_ + k;
  }

 private:
  TensorView<const float, 2> x_;
  int64_t k_padded_;
  bf16* halves_ = nullptr;
};

}  // namespace tandem::ops
