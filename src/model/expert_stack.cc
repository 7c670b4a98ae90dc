#include "model/expert_stack.h"

#include <utility>

namespace tandem::model {

Result<std::unique_ptr<ExpertStack>> ExpertStack::create(Device& device, const Qwen3Specs& specs,
                                                         comm::ExpertPlacement placement) {
  auto gate_up = TANDEM_TRY(ops::PackedLinear::create(device, specs.expert_gate_up));
  auto down = TANDEM_TRY(ops::PackedLinear::create(device, specs.expert_down));
  return std::make_unique<ExpertStack>(
      ExpertStack{std::move(placement), std::move(gate_up), std::move(down)});
}

size_t ExpertStack::bytes_needed(const Qwen3Specs& specs) {
  return ops::PackedLinear::bytes_needed(specs.expert_gate_up) +
         ops::PackedLinear::bytes_needed(specs.expert_down);
}

ExpertReader::ExpertReader(const ModelConfig& config, WeightSource& source)
    : config_(config), source_(source), fused_(fused_layers(config, source.names())) {}

Result<void> ExpertReader::fill(ExpertStack& stack, int rank, int64_t layer,
                                const ExpertStack* current) {
  const auto experts = stack.placement.experts_of(rank);
  for (size_t i = 0; i < experts.size(); ++i) {
    if (experts[i] == comm::ExpertPlacement::kNone) continue;
    const auto slot = static_cast<int64_t>(i);
    const int32_t old_slot = current == nullptr ? comm::ExpertPlacement::kNone
                                                : current->placement.slot_of(rank, experts[i]);
    if (old_slot != comm::ExpertPlacement::kNone) {
      stack.gate_up.copy_matrix(slot, current->gate_up, old_slot);
      stack.down.copy_matrix(slot, current->down, old_slot);
    } else if (fused_[static_cast<size_t>(layer)]) {
      TANDEM_TRY(read_fused(stack, slot, layer, experts[i]));
    } else {
      TANDEM_TRY(read(stack, slot, layer, experts[i]));
    }
  }
  return {};
}

Result<void> ExpertReader::read(ExpertStack& stack, int64_t slot, int64_t layer, int64_t expert) {
  const int64_t width = config_.moe_intermediate_size;
  const auto pack = [&](ops::PackedLinear& weight, int64_t first_row, const char* projection,
                        int64_t rows) -> Result<void> {
    const std::string name = names_.expert(layer, expert, projection);
    const WeightView view = TANDEM_TRY(source_.slice(name, {.rows = {0, rows}}));
    weight.set_rows(slot, first_row,
                    {.data = view.bytes.data(), .dtype = view.dtype, .rows = view.shape[0]});
    source_.release(name);
    return {};
  };
  TANDEM_TRY(pack(stack.gate_up, 0, "gate_proj", width));
  TANDEM_TRY(pack(stack.gate_up, width, "up_proj", width));
  return pack(stack.down, 0, "down_proj", config_.hidden_size);
}

Result<void> ExpertReader::read_fused(ExpertStack& stack, int64_t slot, int64_t layer,
                                      int64_t expert) {
  const auto pack = [&](ops::PackedLinear& weight, const char* projection) -> Result<void> {
    const std::string name = names_.fused_experts(layer, projection);
    const WeightView view = TANDEM_TRY(source_.slice(name, {.rows = {expert, expert + 1}}));
    weight.set_rows(slot, 0,
                    {.data = view.bytes.data(), .dtype = view.dtype, .rows = view.shape[1]});
    source_.release(name);
    return {};
  };
  TANDEM_TRY(pack(stack.gate_up, "gate_up_proj"));
  return pack(stack.down, "down_proj");
}

}  // namespace tandem::model
