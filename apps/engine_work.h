#pragma once

#include <cstdint>

#include "device/dtype.h"
#include "model/config.h"

namespace tandem::apps {

/// The least that a step must compute and read, counted from the shapes of a model; the numerators
/// of every share that `tandem bench engine` prints.
struct EngineWork {
  const model::ModelConfig& config;
  DType dtype;  ///< of weights and KV

  /// Multiplications and additions of one prompt from position 0, logits of its last token only.
  /// Causal attention counts the pairs that are seen, not the square.
  double prefill_flops(int64_t prompt) const;
  /// Bytes of weights and KV of one step with one token for each of `batch` sequences that hold
  /// `context` tokens. For several sequences the number of experts that any of them chose is the
  /// expectation under uniform independent routing; for one it is exact.
  double decode_bytes(int64_t batch, double context) const;
};

}  // namespace tandem::apps
