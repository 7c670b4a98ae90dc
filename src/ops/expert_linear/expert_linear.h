#pragma once

#include "base/result.h"
#include "device/device.h"
#include "device/tensor.h"
#include "ops/linear/packed_linear.h"

namespace tandem::ops {

/// Grouped GEMM: y[r] = x[row_source[r]] W_e^T for the rows r of expert e, which are
/// expert_offsets[e] .. expert_offsets[e+1]. Experts without rows cost nothing; their weights are
/// not read. Numerics as `linear`: a row does not depend on its neighbours.
struct ExpertLinearArgs {
  TensorView<const float, 2> x;                 ///< [x_rows, in_features]
  const PackedLinear* weights = nullptr;        ///< stack = experts of this rank
  TensorView<const int32_t, 1> row_source;      ///< [rows], or data == nullptr for row r = x row r
  TensorView<const int32_t, 1> expert_offsets;  ///< [experts + 1], ascending, last = rows
  TensorView<float, 2> y;                       ///< [rows, out_features]
};

Result<void> expert_linear(Stream& stream, const ExpertLinearArgs& args);

}  // namespace tandem::ops
