#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "comm/expert_placement.h"
#include "device/device.h"
#include "model/config.h"
#include "model/qwen3_specs.h"
#include "model/tensor_names.h"
#include "model/weight_source.h"
#include "ops/linear/packed_linear.h"

namespace tandem::model {

/// One layer's experts: where they all are, and the weights of those on this rank, slot by slot.
struct ExpertStack {
  comm::ExpertPlacement placement;
  ops::PackedLinear gate_up;  ///< slots x [2 * moe_intermediate, hidden]
  ops::PackedLinear down;     ///< slots x [hidden, moe_intermediate]

  /// Memory for the slots of a rank whose specs these are; contents are zero.
  static Result<std::unique_ptr<ExpertStack>> create(Device& device, const Qwen3Specs& specs,
                                                     comm::ExpertPlacement placement);
  static size_t bytes_needed(const Qwen3Specs& specs);
};

/// Reads single experts of a checkpoint into slots, and nothing else of it. Used by one thread.
class ExpertReader {
 public:
  /// `config` and `source` outlive it.
  ExpertReader(const ModelConfig& config, WeightSource& source);

  /// All slots of this rank for the stack's placement. What `current` (may be null) has is copied
  /// from there, the rest is read.
  Result<void> fill(ExpertStack& stack, int rank, int64_t layer, const ExpertStack* current);

 private:
  Result<void> read(ExpertStack& stack, int64_t slot, int64_t layer, int64_t expert);
  Result<void> read_fused(ExpertStack& stack, int64_t slot, int64_t layer, int64_t expert);

  const ModelConfig& config_;
  WeightSource& source_;
  const std::vector<bool> fused_;  // [layers] experts in one tensor
  TensorNames names_;
};

}  // namespace tandem::model
