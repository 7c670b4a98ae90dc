#pragma once

#include "base/result.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tandem::ops {

/// out[t] = table[tokens[t] - first_token], converted to f32. Where the table is a part of the
/// vocabulary, a token that is not in it gives -0, which changes no sum over the parts.
struct EmbedArgs {
  TensorView<const int32_t, 1> tokens;  ///< [tokens], each in the vocabulary
  AnyTensor table;                      ///< [rows, hidden], bf16 or f32
  int64_t first_token = 0;              ///< of the table's first row
  bool is_part = false;                 ///< the table lacks some tokens
  TensorView<float, 2> out;             ///< [tokens, hidden]
};

Result<void> embed(Stream& stream, const EmbedArgs& args);

}  // namespace tandem::ops
