#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/limits.h"
#include "engine/step_tensors.h"
#include "model/step_input.h"

namespace tandem::engine {

/// One step as the leader of a tensor-parallel group sends it to its followers, which run exactly
/// it: the 64-bit id of the experts' placement and number of the step, 32-bit counts (tokens,
/// sequences, rows, pages of a sequence), then the index tensors one after another. Between ranks
/// of one build.
class StepMessage {
 public:
  /// `limits` of the data-parallel group: the same on leader and followers.
  explicit StepMessage(const Limits& limits);
  static size_t bytes_max(const StepTensors::Limits& limits);

  struct Step {
    model::StepInput input;
    uint64_t number = 0;   ///< for layer progress; 0: nobody asks for it
    uint64_t plan_id = 0;  ///< of the placement of experts in this step
  };
  /// Valid until the next call. Allocates nothing.
  std::span<const std::byte> encode(const Step& step);
  /// Views into `message`. kDataLoss when that is no step within the limits, in sizes and contents:
  /// what is returned names only tokens, positions, slots and rows that there are, and of a
  /// sequence's row of the page table, pages for all its tokens. The rest of such a row is
  /// undefined.
  Result<Step> decode(std::span<const std::byte> message) const;

 private:
  Limits limits_;
  StepTensors::Limits tensors_;
  std::vector<int32_t> words_;
};

}  // namespace tandem::engine
