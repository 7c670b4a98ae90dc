#include "model/tensor_names.h"

#include <fmt/format.h>

#include <ranges>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/list_text.h"
#include "model/findings.h"

namespace tandem::model {
namespace {

std::string layer_prefix(int64_t layer) {
  return "model.layers." + std::to_string(layer) + ".";
}

std::string shape_text(const std::vector<int64_t>& shape) {
  const auto sizes =
      shape | std::views::transform([](int64_t size) { return std::to_string(size); });
  return fmt::format("[{}]", list_text(sizes));
}

void add_mlp(std::vector<ExpectedTensor>& tensors, int64_t width, int64_t hidden, std::string gate,
             std::string up, std::string down, WeightPart part) {
  tensors.push_back({std::move(gate), {width, hidden}, part});
  tensors.push_back({std::move(up), {width, hidden}, part});
  tensors.push_back({std::move(down), {hidden, width}, part});
}

bool is_ignored(const ModelConfig& config, std::string_view name) {
  return name.starts_with("mtp.") || name.ends_with("rotary_emb.inv_freq") ||
         (config.tie_word_embeddings && name == TensorNames().lm_head());
}

bool is_weight_dtype(const std::optional<DType>& dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

}  // namespace

std::string TensorNames::embedding() const {
  return "model.embed_tokens.weight";
}

std::string TensorNames::final_norm() const {
  return "model.norm.weight";
}

std::string TensorNames::lm_head() const {
  return "lm_head.weight";
}

std::string TensorNames::input_norm(int64_t layer) const {
  return layer_prefix(layer) + "input_layernorm.weight";
}

std::string TensorNames::q_norm(int64_t layer) const {
  return attention(layer, "q_norm");
}

std::string TensorNames::k_norm(int64_t layer) const {
  return attention(layer, "k_norm");
}

std::string TensorNames::post_attention_norm(int64_t layer) const {
  return layer_prefix(layer) + "post_attention_layernorm.weight";
}

std::string TensorNames::attention(int64_t layer, std::string_view projection) const {
  return layer_prefix(layer) + "self_attn." + std::string(projection) + ".weight";
}

std::string TensorNames::mlp(int64_t layer, std::string_view projection) const {
  return layer_prefix(layer) + "mlp." + std::string(projection) + ".weight";
}

std::string TensorNames::router(int64_t layer) const {
  return mlp(layer, "gate");
}

std::string TensorNames::expert(int64_t layer, int64_t expert, std::string_view projection) const {
  return layer_prefix(layer) + "mlp.experts." + std::to_string(expert) + "." +
         std::string(projection) + ".weight";
}

size_t ExpectedTensor::elements() const {
  size_t count = 1;
  for (int64_t dimension : shape) count *= static_cast<size_t>(dimension);
  return count;
}

std::string TensorNames::fused_experts(int64_t layer, std::string_view projection) const {
  return layer_prefix(layer) + "mlp.experts." + std::string(projection);
}

std::vector<bool> fused_layers(const ModelConfig& config, const std::vector<std::string>& names) {
  const std::unordered_set<std::string_view> present(names.begin(), names.end());
  std::vector<bool> fused(static_cast<size_t>(config.layers_count), false);
  for (int64_t i = 0; i < config.layers_count; ++i) {
    const auto layer = static_cast<size_t>(i);
    if (!config.layer_is_moe[layer]) continue;
    fused[layer] = present.contains(TensorNames().fused_experts(i, "gate_up_proj")) ||
                   present.contains(TensorNames().fused_experts(i, "down_proj"));
  }
  return fused;
}

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config,
                                             const std::vector<bool>& fused) {
  const TensorNames names;
  const int64_t hidden = config.hidden_size;
  const int64_t q_rows = config.heads * config.head_dim;
  const int64_t kv_rows = config.kv_heads * config.head_dim;
  std::vector<ExpectedTensor> tensors;
  tensors.push_back({names.embedding(), {config.vocab_size, hidden}, WeightPart::kEmbedding});
  for (int64_t i = 0; i < config.layers_count; ++i) {
    tensors.push_back({names.input_norm(i), {hidden}, WeightPart::kNorms});
    tensors.push_back({names.attention(i, "q_proj"), {q_rows, hidden}, WeightPart::kAttention});
    tensors.push_back({names.attention(i, "k_proj"), {kv_rows, hidden}, WeightPart::kAttention});
    tensors.push_back({names.attention(i, "v_proj"), {kv_rows, hidden}, WeightPart::kAttention});
    tensors.push_back({names.attention(i, "o_proj"), {hidden, q_rows}, WeightPart::kAttention});
    tensors.push_back({names.q_norm(i), {config.head_dim}, WeightPart::kNorms});
    tensors.push_back({names.k_norm(i), {config.head_dim}, WeightPart::kNorms});
    tensors.push_back({names.post_attention_norm(i), {hidden}, WeightPart::kNorms});
    if (!config.layer_is_moe[static_cast<size_t>(i)]) {
      add_mlp(tensors, config.intermediate_size, hidden, names.mlp(i, "gate_proj"),
              names.mlp(i, "up_proj"), names.mlp(i, "down_proj"), WeightPart::kDenseMlp);
      continue;
    }
    const int64_t experts = config.experts_count;
    const int64_t width = config.moe_intermediate_size;
    tensors.push_back({names.router(i), {experts, hidden}, WeightPart::kRouter});
    if (!fused.empty() && fused[static_cast<size_t>(i)]) {
      tensors.push_back({names.fused_experts(i, "gate_up_proj"),
                         {experts, 2 * width, hidden},
                         WeightPart::kExperts});
      tensors.push_back(
          {names.fused_experts(i, "down_proj"), {experts, hidden, width}, WeightPart::kExperts});
      continue;
    }
    for (int64_t e = 0; e < experts; ++e) {
      add_mlp(tensors, width, hidden, names.expert(i, e, "gate_proj"),
              names.expert(i, e, "up_proj"), names.expert(i, e, "down_proj"), WeightPart::kExperts);
    }
  }
  tensors.push_back({names.final_norm(), {hidden}, WeightPart::kNorms});
  if (!config.tie_word_embeddings) {
    tensors.push_back({names.lm_head(), {config.vocab_size, hidden}, WeightPart::kHead});
  }
  return tensors;
}

Result<void> check_tensors(const ModelConfig& config, WeightSource& source) {
  std::unordered_map<std::string, WeightInfo> present;
  const std::vector<std::string> names = source.names();
  for (const std::string& name : names) {
    present.emplace(name, TANDEM_TRY(source.describe(name)));
  }
  Findings findings;
  for (const ExpectedTensor& expected : expected_tensors(config, fused_layers(config, names))) {
    const auto at = present.find(expected.name);
    if (at == present.end()) {
      findings.add("missing tensors", expected.name);
      continue;
    }
    const WeightInfo& info = at->second;
    if (info.shape != expected.shape) {
      findings.add("tensors of a wrong shape", expected.name + " " + shape_text(info.shape) +
                                                   " instead of " + shape_text(expected.shape));
    }
    if (!is_weight_dtype(info.dtype)) {
      findings.add("tensors of an unsupported dtype",
                   expected.name + " " + info.dtype_name + " instead of bf16, f16 or f32");
    }
    present.erase(at);
  }
  for (const std::string& name : names) {
    if (present.count(name) == 1 && !is_ignored(config, name)) {
      findings.add("unexpected tensors", name);
    }
  }
  if (findings.empty()) return {};
  return make_error(Code::kInvalidArgument,
                    "the weights do not fit config.json: " + findings.text());
}

}  // namespace tandem::model
