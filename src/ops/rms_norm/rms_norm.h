#pragma once

#include "base/result.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tandem::ops {

/// out = x / sqrt(mean(x^2) + eps) * weight, per row, in f32 (Zhang & Sennrich 2019).
struct RmsNormArgs {
  TensorView<const float, 2> x;       ///< [tokens, hidden]
  TensorView<const float, 1> weight;  ///< [hidden]
  float eps = 1e-6f;
  TensorView<float, 2> out;  ///< [tokens, hidden]; may be x itself
};

Result<void> rms_norm(Stream& stream, const RmsNormArgs& args);

}  // namespace tandem::ops
