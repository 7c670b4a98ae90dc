#pragma once

#include "base/result.h"
#include "device/device.h"
#include "device/tensor.h"
#include "ops/linear/packed_linear.h"

namespace tandem::ops {

/// y = x W^T, or y += x W^T.
///
/// x is rounded to the weight's dtype, products are summed in f32. A row's result depends on that
/// row and W alone: never on the number of rows, their order or the threads. See
/// LinearSpec::partition for the order of the sum.
struct LinearArgs {
  TensorView<const float, 2> x;  ///< [tokens, in_features]
  const PackedLinear* weight = nullptr;
  TensorView<float, 2> y;   ///< [tokens, out_features]
  bool accumulate = false;  ///< add the finished sum to y (one f32 addition)
};

Result<void> linear(Stream& stream, const LinearArgs& args);

}  // namespace tandem::ops
