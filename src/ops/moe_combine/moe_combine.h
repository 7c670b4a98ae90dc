#pragma once

#include "base/result.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tandem::ops {

/// y[t] += sum over j of weights[t, j] * rows[row_of[t, j]].
///
/// Each expert row is first rounded to `wire`, the type in which it would cross between ranks.
/// The sum is the binary tree over expert ids (an absent expert passes its sibling on), so a rank
/// that holds an aligned power-of-two range of experts sums exactly one subtree of it.
struct MoeCombineArgs {
  TensorView<const float, 2> rows;          ///< [tokens * k, hidden]
  TensorView<const int32_t, 2> row_of;      ///< [tokens, k]
  TensorView<const int32_t, 2> expert_ids;  ///< [tokens, k], ascending in each row
  TensorView<const float, 2> weights;       ///< [tokens, k]
  DType wire = DType::kF32;                 ///< kF32 or kBF16
  TensorView<float, 2> y;                   ///< [tokens, hidden]
};

Result<void> moe_combine(Stream& stream, const MoeCombineArgs& args);

}  // namespace tandem::ops
