#pragma once

#include "base/result.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tandem::ops {

/// out = silu(gate) * up, with silu(z) = z / (1 + exp(-z)), in f32.
struct SiluMulArgs {
  TensorView<const float, 2> gate_up;  ///< [rows, 2 * width]: gate | up
  TensorView<float, 2> out;            ///< [rows, width]
};

Result<void> silu_mul(Stream& stream, const SiluMulArgs& args);

}  // namespace tandem::ops
