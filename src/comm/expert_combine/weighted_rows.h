#pragma once

#include <cstddef>

#include "base/result.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tandem::comm {

/// Per token, the weighted expert rows added in the binary tree over expert ids: the sum of
/// ops/moe_combine, for rows that are already of their wire type and may be elsewhere.
struct WeightedRowsArgs {
  const std::byte* rows = nullptr;          ///< [rows, hidden], dense
  DType row_type = DType::kF32;             ///< kF32 or kBF16
  DType wire = DType::kF32;                 ///< rows are rounded to this type first
  TensorView<const int32_t, 2> row_of;      ///< [tokens, k], -1: not in this sum
  TensorView<const int32_t, 2> expert_ids;  ///< [tokens, k], ascending in each row
  TensorView<const float, 2> weights;       ///< [tokens, k]
  bool accumulate = false;                  ///< y += sum; otherwise y = sum, -0 for no row at all
  TensorView<float, 2> y;                   ///< [tokens, hidden]
};

Result<void> weighted_rows(Stream& stream, const WeightedRowsArgs& args);

}  // namespace tandem::comm
