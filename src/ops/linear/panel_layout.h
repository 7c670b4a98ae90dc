#pragma once

#include <cstdint>

#include "ops/linear/packed_linear.h"

namespace tandem::ops {

/// Where the elements of a PackedLinear lie on a CPU: panels of 64 output features, each over the
/// whole contraction (cpu/panel.h), the last one padded with zero columns.
struct PanelLayout {
  static constexpr int64_t kColumns = 64;

  explicit PanelLayout(const LinearSpec& spec)
      : panels((spec.out_features + kColumns - 1) / kColumns),
        k_padded(spec.dtype == DType::kBF16 ? (spec.in_features + 1) / 2 * 2 : spec.in_features),
        element_bytes(static_cast<int64_t>(dtype_bytes(spec.dtype))),
        paired(spec.dtype == DType::kBF16) {}

  int64_t panel_bytes() const { return k_padded * kColumns * element_bytes; }
  int64_t matrix_bytes() const { return panels * panel_bytes(); }
  /// Element (column of the panel, k), counted in elements from the panel's start.
  int64_t element(int64_t column, int64_t k) const {
    return paired ? (k / 2 * kColumns + column) * 2 + k % 2 : k * kColumns + column;
  }
  /// Bytes from the panel's start to contraction step k (even when paired).
  int64_t step_bytes(int64_t k) const { return k * kColumns * element_bytes; }

  int64_t panels;
  int64_t k_padded;
  int64_t element_bytes;
  bool paired;
};

}  // namespace tandem::ops
