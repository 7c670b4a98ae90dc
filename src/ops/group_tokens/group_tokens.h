#pragma once

#include "base/result.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tandem::ops {

/// Orders the (token, expert) pairs by expert, tokens ascending within one: the row order of the
/// grouped GEMMs. Moves no activations.
struct GroupTokensArgs {
  TensorView<const int32_t, 2> expert_ids;  ///< [tokens, k]
  TensorView<int32_t, 1> expert_offsets;    ///< [experts + 1], out: rows of expert e
  TensorView<int32_t, 1> row_source;        ///< [tokens * k], out: the token of each row
  TensorView<int32_t, 2> row_of;            ///< [tokens, k], out: the row of each pair
};

Result<void> group_tokens(Stream& stream, const GroupTokensArgs& args);

}  // namespace tandem::ops
