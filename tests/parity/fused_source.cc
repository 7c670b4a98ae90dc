#include "tests/parity/fused_source.h"

#include <utility>

#include "model/tensor_names.h"

namespace tandem::parity {
namespace {

bool is_of_expert(const std::string& name) {
  return name.find(".experts.") != std::string::npos;
}

}  // namespace

FusedSource::FusedSource(const model::ModelConfig& config, model::WeightSource& source)
    : source_(source) {
  const model::TensorNames names;
  const int64_t experts = config.experts_count;
  const int64_t width = config.moe_intermediate_size;
  for (int64_t i = 0; i < config.layers_count; ++i) {
    if (!config.layer_is_moe[static_cast<size_t>(i)]) continue;
    std::vector<std::string> gate_up;
    std::vector<std::string> down;
    for (int64_t e = 0; e < experts; ++e) {
      gate_up.push_back(names.expert(i, e, "gate_proj"));
      gate_up.push_back(names.expert(i, e, "up_proj"));
      down.push_back(names.expert(i, e, "down_proj"));
    }
    fuse(names.fused_experts(i, "gate_up_proj"), gate_up, {experts, 2 * width, config.hidden_size});
    fuse(names.fused_experts(i, "down_proj"), down, {experts, config.hidden_size, width});
  }
}

void FusedSource::fuse(const std::string& name, const std::vector<std::string>& parts,
                       std::vector<int64_t> shape) {
  Fused& fused = fused_[name];
  fused.shape = std::move(shape);
  for (const std::string& part : parts) {
    const model::WeightView view = source_.tensor(part).value();
    fused.dtype = view.dtype;
    fused.bytes.insert(fused.bytes.end(), view.bytes.begin(), view.bytes.end());
  }
}

std::vector<std::string> FusedSource::names() const {
  std::vector<std::string> result;
  for (const std::string& name : source_.names()) {
    if (!is_of_expert(name)) result.push_back(name);
  }
  for (const auto& [name, fused] : fused_) result.push_back(name);
  return result;
}

Result<model::WeightView> FusedSource::tensor(const std::string& name) {
  const auto at = fused_.find(name);
  if (at == fused_.end()) {
    // A fused file has nothing else of experts: a loader that asks for it must not be answered.
    if (is_of_expert(name)) return make_error(Code::kNotFound, name + " is fused");
    return source_.tensor(name);
  }
  return model::WeightView{
      .dtype = at->second.dtype, .shape = at->second.shape, .bytes = at->second.bytes};
}

}  // namespace tandem::parity
