#pragma once

#include <cstdint>

#include "device/tensor.h"

namespace tandem::model {

/// One step's work as device tensors, filled by engine/step: `sequences` runs of consecutive
/// tokens, one run per sequence. The model sees page tables only as tensors.
struct StepInput {
  TensorView<const int32_t, 1> tokens;     ///< [tokens]
  TensorView<const int32_t, 1> positions;  ///< [tokens], absolute in the sequence
  TensorView<const int32_t, 1> slots;      ///< [tokens]: page * page_tokens + offset of its K and V
  TensorView<const int32_t, 1> query_start;  ///< [sequences + 1]
  TensorView<const int32_t, 1> kv_tokens;    ///< [sequences], this step's tokens included
  TensorView<const int32_t, 2> page_table;   ///< [sequences, pages_max]
  TensorView<const int32_t, 1> logits_rows;  ///< [rows]: the tokens whose logits are wanted
  /// [1], or null: gets `step * layers + layer` after this rank's K and V of a layer are written.
  TensorView<uint64_t, 1> progress;
  uint64_t step = 0;  ///< with progress: counted from 1
};

}  // namespace tandem::model
