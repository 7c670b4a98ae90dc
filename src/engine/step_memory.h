#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "device/device.h"
#include "engine/kv_storage.h"
#include "engine/limits.h"
#include "engine/step_tensors.h"
#include "model/activations.h"

namespace tandem::engine {

/// What a rank's steps need beside the weights: KV pages, activations and index tensors, reserved
/// at start for the largest step. The size is known before anything is allocated or loaded.
struct StepMemory {
  struct Options {
    DType kv_dtype = DType::kBF16;
    int64_t tokens_max = 0;  ///< of one step
    int64_t sequences_max = 0;
    int64_t rows_max = 0;   ///< tokens of one step whose logits are wanted
    int64_t pages_max = 0;  ///< of one sequence
    int64_t pages_total = 0;
    int64_t page_tokens = 0;

    model::Activations::Limits activations() const;
    StepTensors::Limits tensors() const;
  };
  /// What an engine with these limits needs.
  static Options options_of(const Limits& limits, DType kv_dtype);

  struct Bytes {
    size_t kv = 0;
    size_t activations = 0;  ///< logits among them
    size_t logits = 0;
    size_t index = 0;
    size_t total() const { return kv + activations + index; }
  };
  /// What create() allocates.
  static Bytes bytes_needed(const model::Shard& shard, const Options& options);
  static Result<StepMemory> create(Device& device, const model::Shard& shard,
                                   const Options& options);

  KvStorage kv;
  model::Activations activations;
  StepTensors tensors;
  Buffer progress;  ///< [1] uint64_t, StepInput::progress; 0 at first
};

}  // namespace tandem::engine
