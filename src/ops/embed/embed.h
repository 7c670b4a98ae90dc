#pragma once

#include "base/result.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tandem::ops {

/// out[t] = table[tokens[t]], converted to f32.
struct EmbedArgs {
  TensorView<const int32_t, 1> tokens;  ///< [tokens], each in [0, vocabulary)
  AnyTensor table;                      ///< [vocabulary, hidden], bf16 or f32
  TensorView<float, 2> out;             ///< [tokens, hidden]
};

Result<void> embed(Stream& stream, const EmbedArgs& args);

}  // namespace tandem::ops
