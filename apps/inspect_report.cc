#include "apps/inspect_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

namespace tandem::apps {
namespace {

using Json = nlohmann::ordered_json;

const char* family_name(model::ModelFamily family) {
  switch (family) {
    case model::ModelFamily::kQwen3:
      return "qwen3";
    case model::ModelFamily::kQwen3Moe:
      return "qwen3_moe";
  }
  return "?";
}

const char* scaling_name(model::RopeConfig::Scaling scaling) {
  switch (scaling) {
    case model::RopeConfig::Scaling::kNone:
      return "none";
    case model::RopeConfig::Scaling::kLinear:
      return "linear";
    case model::RopeConfig::Scaling::kYarn:
      return "yarn";
  }
  return "?";
}

Json rope_json(const model::RopeConfig& rope) {
  using enum model::RopeConfig::Scaling;
  Json json{{"theta", rope.theta},
            {"rotary_dim", rope.rotary_dim},
            {"scaling", scaling_name(rope.scaling)}};
  if (rope.scaling == kNone) return json;
  json["factor"] = rope.factor;
  if (rope.scaling != kYarn) return json;
  json["original_max_position"] = rope.original_max_position;
  json["beta_fast"] = rope.beta_fast;
  json["beta_slow"] = rope.beta_slow;
  json["attention_factor"] = rope.attention_factor;
  return json;
}

/// Config in the order a reader wants it; one list for both outputs.
Json config_json(const model::ModelFiles& files) {
  const model::ModelConfig& c = files.config;
  Json json{{"family", family_name(c.family)},
            {"layers", c.layers_count},
            {"layers_with_experts", std::ranges::count(c.layer_is_moe, true)},
            {"hidden_size", c.hidden_size},
            {"heads", c.heads},
            {"kv_heads", c.kv_heads},
            {"head_dim", c.head_dim},
            {"intermediate_size", c.intermediate_size}};
  if (c.experts_count > 0) {
    json["experts"] = c.experts_count;
    json["experts_per_token"] = c.experts_per_token;
    json["moe_intermediate_size"] = c.moe_intermediate_size;
    json["norm_topk_prob"] = c.norm_topk_prob;
  }
  json["rope"] = rope_json(c.rope);
  json["max_position_embeddings"] = c.max_position_embeddings;
  // The shortest decimal of the float, not the digits of its double.
  json["rms_norm_eps"] = Json::parse(fmt::format("{}", c.rms_norm_eps));
  json["vocabulary"] = c.vocab_size;
  json["tie_word_embeddings"] = c.tie_word_embeddings;
  json["checkpoint_dtype"] = dtype_name(c.checkpoint_dtype);
  json["stop_token_ids"] = files.stop_token_ids;
  return json;
}

/// Tensors of one kind, summed.
struct Sum {
  std::string name;
  size_t count = 0;
  size_t elements = 0;
  size_t bytes = 0;

  void add(const Checkpoint::Tensor& tensor) {
    ++count;
    elements += tensor.elements();
    bytes += tensor.info.bytes;
  }
};

const char* part_name(const std::optional<model::WeightPart>& part) {
  return part ? model::weight_part_name(*part) : "ignored";
}

/// One sum for each part that has tensors, in the order of the parts; what the model reads, in all;
/// and what it ignores.
std::vector<Sum> sums_of(const Checkpoint& checkpoint) {
  std::vector<Sum> sums;
  for (model::WeightPart part : model::kWeightParts) sums.push_back({.name = part_name(part)});
  Sum all{.name = "in all"};
  Sum ignored{.name = part_name(std::nullopt)};
  for (const Checkpoint::Tensor& tensor : checkpoint.tensors) {
    if (tensor.part) {
      sums[static_cast<size_t>(*tensor.part)].add(tensor);
      all.add(tensor);
    } else {
      ignored.add(tensor);
    }
  }
  sums.push_back(all);
  sums.push_back(ignored);
  std::erase_if(sums, [](const Sum& sum) { return sum.count == 0; });
  return sums;
}

Json tensors_json(const Checkpoint& checkpoint) {
  Json list = Json::array();
  for (const Checkpoint::Tensor& tensor : checkpoint.tensors) {
    list.push_back({{"name", tensor.name},
                    {"part", part_name(tensor.part)},
                    {"dtype", tensor.info.dtype_name},
                    {"shape", tensor.info.shape},
                    {"bytes", tensor.info.bytes},
                    {"file", tensor.info.file}});
  }
  return list;
}

Json memory_json(const MemoryDemand& demand, const MemoryPlan& plan, uint32_t sequences_max) {
  Json weights;
  for (model::WeightPart part : model::kWeightParts) {
    weights[model::weight_part_name(part)] = plan.weights[part];
  }
  Json json{{"dtype", dtype_name(demand.compute)},
            {"model_length_max", demand.model_length_max},
            {"sequences_max", sequences_max},
            {"step_tokens_max", demand.step.tokens_max},
            {"pages_total", demand.step.pages_total},
            {"page_tokens", demand.step.page_tokens},
            {"weights", weights},
            {"weights_bytes", plan.weights.total()},
            {"kv_bytes", plan.step.kv},
            {"activations_bytes", plan.step.activations - plan.step.logits},
            {"logits_bytes", plan.step.logits},
            {"page_tables_bytes", plan.step.index},
            {"scratch_bytes", plan.scratch_bytes},
            {"program_bytes", plan.program_bytes},
            {"needed_bytes", plan.needed_bytes()},
            {"machine_bytes", plan.host.machine_bytes},
            {"group_bytes", nullptr},
            {"available_bytes", plan.host.available_bytes()},
            {"fits", plan.fits()}};
  if (plan.host.group_bytes) json["group_bytes"] = *plan.host.group_bytes;
  if (!plan.fits()) json["fix"] = memory_fix(demand, plan);
  return json;
}

void add_config(std::string& text, const Json& config, const std::string& indent) {
  for (const auto& [key, value] : config.items()) {
    if (value.is_object()) {
      fmt::format_to(std::back_inserter(text), "{}{}\n", indent, key);
      add_config(text, value, indent + "  ");
    } else {
      const std::string shown = value.is_string() ? value.get<std::string>() : value.dump();
      fmt::format_to(std::back_inserter(text), "{}{:<{}} {}\n", indent, key, 26 - indent.size(),
                     shown);
    }
  }
}

void add_tensors(std::string& text, const Checkpoint& checkpoint) {
  for (const Checkpoint::Tensor& tensor : checkpoint.tensors) {
    fmt::format_to(std::back_inserter(text), "  {}  {}  {}  {}  {}\n", tensor.name,
                   part_name(tensor.part), tensor.info.dtype_name, Json(tensor.info.shape).dump(),
                   tensor.info.file);
  }
}

}  // namespace

std::string InspectReport::text() const {
  std::string text = files.folder.string() + "\n";
  add_config(text, config_json(files), "  ");
  text += checkpoint.has_weights
              ? "tensors of the checkpoint\n"
              : "tensors that config.json asks for (the folder holds no weights)\n";
  for (const Sum& sum : sums_of(checkpoint)) {
    fmt::format_to(std::back_inserter(text), "  {:<20} {:>12} {:>14} parameters {:>8} tensors\n",
                   sum.name, bytes_text(sum.bytes), sum.elements, sum.count);
  }
  if (lists_tensors) add_tensors(text, checkpoint);
  text += fmt::format("up to {} tokens a sequence, {} sequences at once\n", demand.model_length_max,
                      sequences_max);
  return text + memory_table(demand, plan);
}

std::string InspectReport::json() const {
  Json parts = Json::array();
  for (const Sum& sum : sums_of(checkpoint)) {
    parts.push_back({{"part", sum.name},
                     {"tensors", sum.count},
                     {"parameters", sum.elements},
                     {"bytes", sum.bytes}});
  }
  Json json{{"model", files.folder.string()},
            {"config", config_json(files)},
            {"has_weights", checkpoint.has_weights},
            {"parts", parts}};
  if (lists_tensors) json["tensors"] = tensors_json(checkpoint);
  json["memory"] = memory_json(demand, plan, sequences_max);
  // Names of tensors are whatever a file says.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tandem::apps
