#pragma once

#include "base/result.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tandem::comm {

/// Where every rank holds every token (tensor parallelism): the (token, expert) pairs of this
/// rank's experts, ordered by expert, tokens ascending within one. The input of expert_linear;
/// expert_combine takes its output.
///
/// Phases     none across ranks; a counting sort of this rank's pairs
/// Bytes      none
/// Roof       reads tokens * k small integers
struct ExpertSelectArgs {
  TensorView<const int32_t, 2> expert_ids;  ///< [tokens, k], ascending in each row
  int32_t first_expert = 0;                 ///< of this rank; their number is that of the offsets
  TensorView<int32_t, 1> expert_offsets;    ///< [experts of this rank + 1], out, last = rows
  TensorView<int32_t, 1> row_source;        ///< [tokens * k], out: the token of each row
  TensorView<int32_t, 2> row_of;            ///< [tokens, k], out: the row of each pair, -1 if none
};

Result<void> expert_select(Stream& stream, const ExpertSelectArgs& args);

}  // namespace tandem::comm
