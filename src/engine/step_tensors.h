#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "device/device.h"
#include "model/step_input.h"

namespace tandem::engine {

/// Turns sequences' chunks into the index tensors of one step. Allocated once for the largest step;
/// building a step allocates nothing.
class StepTensors {
 public:
  struct Limits {
    int64_t tokens_max = 0;
    int64_t sequences_max = 0;
    int64_t rows_max = 0;
    int64_t pages_max = 0;  ///< of one sequence
    int64_t page_tokens = 0;
  };
  static Result<StepTensors> create(Device& device, Limits limits);
  /// What create() allocates.
  static size_t bytes_needed(Limits limits);

  void clear();
  /// Adds positions [start, tokens.size()) of a sequence whose tokens up to there are `tokens` and
  /// whose pages cover them. Logits are wanted for its last `logits_count` positions.
  void append(std::span<const TokenId> tokens, uint32_t start, std::span<const PageId> pages,
              uint32_t logits_count);
  /// The step so far; valid until the next clear().
  model::StepInput input() const;

 private:
  Limits limits_;
  Buffer storage_;
  TensorView<int32_t, 1> tokens_;
  TensorView<int32_t, 1> positions_;
  TensorView<int32_t, 1> slots_;
  TensorView<int32_t, 1> query_start_;
  TensorView<int32_t, 1> kv_tokens_;
  TensorView<int32_t, 2> page_table_;
  TensorView<int32_t, 1> logits_rows_;
  int64_t tokens_count_ = 0;
  int64_t sequences_count_ = 0;
  int64_t rows_count_ = 0;
};

}  // namespace tandem::engine
