#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/step_tensors.h"
#include "model/step_input.h"

namespace tandem::engine {

/// One step as the leader of a tensor-parallel group sends it to its followers, which run exactly
/// it: the 64-bit id of the experts' placement, 32-bit counts (tokens, sequences, rows, pages of a
/// sequence), then the index tensors one after another. Between ranks of one build.
class StepMessage {
 public:
  explicit StepMessage(const StepTensors::Limits& limits);
  static size_t bytes_max(const StepTensors::Limits& limits);

  struct Step {
    model::StepInput input;
    uint64_t plan_id = 0;  ///< of the placement of experts in this step
  };
  /// Valid until the next call. Allocates nothing.
  std::span<const std::byte> encode(const Step& step);
  /// Views into `message`; kDataLoss when it is no step within the limits.
  Result<Step> decode(std::span<const std::byte> message) const;

 private:
  StepTensors::Limits limits_;
  std::vector<int32_t> words_;
};

}  // namespace tandem::engine
