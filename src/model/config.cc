#include "model/config.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "model/eos_ids.h"
#include "model/json_fields.h"
#include "model/rope_config.h"
#include "ops/attention/attention.h"

namespace tandem::model {
namespace {

using Range = JsonFields::Range<int64_t>;

// Each several times the largest released model. Together they keep the bytes of all experts,
// layers * experts * 3 * intermediate * hidden * 4, under 2^60, and the f32 KV of one sequence,
// 2 * layers * kv_heads * head_dim * positions * 4, under 2^58.
constexpr Range kHidden{1, 1 << 16};
constexpr Range kLayers{1, 1 << 10};
constexpr Range kHeads{1, 1 << 10};
constexpr Range kHeadDim{2, 1 << 10};
constexpr Range kIntermediate{1, 1 << 18};
constexpr Range kExperts{0, 1 << 12};
constexpr Range kVocabulary{1, 1 << 22};
constexpr Range kPositions{1, 1 << 24};
// Bounds the list of tensor names, which exists before any weight is seen.
constexpr int64_t kExpertsOfAllLayersMax = 1 << 18;

/// What transformers takes for a key that is absent.
struct FamilyDefaults {
  int64_t hidden_size;
  int64_t layers_count;
  int64_t heads;
  int64_t kv_heads;
  int64_t intermediate_size;
};
constexpr FamilyDefaults kQwen3Defaults{4096, 32, 32, 32, 22016};
constexpr FamilyDefaults kQwen3MoeDefaults{2048, 24, 32, 4, 6144};
constexpr int64_t kVocabularyDefault = 151936;
constexpr int64_t kPositionsDefault = 32768;
constexpr int64_t kQwen3HeadDimDefault = 128;
constexpr int64_t kMoeIntermediateDefault = 768;
constexpr int64_t kExpertsDefault = 128;
constexpr int64_t kExpertsPerTokenDefault = 8;
constexpr double kNormEpsilonDefault = 1e-6;

Result<ModelFamily> parse_family(const JsonFields& text) {
  const std::optional<std::string> type = TANDEM_TRY(text.string("model_type"));
  const std::string supported = "; supported are \"qwen3\" and \"qwen3_moe\"";
  if (!type) {
    return make_error(Code::kInvalidArgument, text.quoted("model_type") + " is absent" + supported);
  }
  if (*type == "qwen3") return ModelFamily::kQwen3;
  if (*type == "qwen3_moe") return ModelFamily::kQwen3Moe;
  return make_error(Code::kUnimplemented,
                    text.quoted("model_type") + " is " + json_excerpt(*type) + supported);
}

Result<void> refuse_quantized(const JsonFields& fields) {
  const Json* quantization = TANDEM_TRY(fields.object("quantization_config"));
  if (quantization == nullptr) return {};
  const JsonFields keys(*quantization, "quantization_config.");
  const std::string method = TANDEM_TRY(keys.string("quant_method")).value_or("unknown method");
  return make_error(Code::kUnimplemented,
                    fields.quoted("quantization_config") + " (" + method +
                        ") is not supported; use the bf16 checkpoint of the model");
}

/// Variants of the architecture that this engine would compute wrongly.
Result<void> refuse_variants(const JsonFields& text, int64_t layers_count) {
  const std::string activation = TANDEM_TRY(text.string("hidden_act")).value_or("silu");
  if (activation != "silu") {
    return make_error(Code::kUnimplemented, text.quoted("hidden_act") + " is " +
                                                json_excerpt(activation) +
                                                "; only \"silu\" is supported");
  }
  if (TANDEM_TRY(text.boolean("attention_bias")).value_or(false)) {
    return make_error(Code::kUnimplemented, text.quoted("attention_bias") +
                                                " is true; projections with a bias are not "
                                                "supported");
  }
  if (TANDEM_TRY(text.boolean("use_sliding_window")).value_or(false)) {
    return make_error(Code::kUnimplemented, text.quoted("use_sliding_window") +
                                                " is true; sliding window attention is not "
                                                "supported");
  }
  const auto types = TANDEM_TRY(text.strings("layer_types"));
  if (!types) return {};
  if (static_cast<int64_t>(types->size()) != layers_count) {
    return make_error(Code::kInvalidArgument,
                      text.quoted("layer_types") + " names " + std::to_string(types->size()) +
                          " layers, but the model has " + std::to_string(layers_count));
  }
  for (const std::string& type : *types) {
    // "attention" is the older word, which transformers renames as it reads.
    if (type == "full_attention" || type == "attention") continue;
    return make_error(Code::kUnimplemented, text.quoted("layer_types") + " contains " +
                                                json_excerpt(type) +
                                                "; only \"full_attention\" is supported");
  }
  return {};
}

Result<DType> parse_dtype(const JsonFields& fields) {
  for (const char* name : {"dtype", "torch_dtype"}) {
    const std::optional<std::string> value = TANDEM_TRY(fields.string(name));
    if (!value) continue;
    if (*value == "bfloat16") return DType::kBF16;
    if (*value == "float16") return DType::kF16;
    if (*value == "float32") return DType::kF32;
    return make_error(Code::kUnimplemented, fields.quoted(name) + " is " + json_excerpt(*value) +
                                                "; supported are bfloat16, float16 and float32");
  }
  return DType::kBF16;
}

Result<void> parse_attention_shape(const JsonFields& text, const FamilyDefaults& defaults,
                                   ModelConfig& config) {
  config.heads = TANDEM_TRY(text.integer("num_attention_heads", kHeads)).value_or(defaults.heads);
  // An explicit null means one KV head per query head; an absent key means the default.
  const Json* kv_heads = text.find_or_null("num_key_value_heads");
  config.kv_heads =
      kv_heads != nullptr && kv_heads->is_null()
          ? config.heads
          : TANDEM_TRY(text.integer("num_key_value_heads", kHeads)).value_or(defaults.kv_heads);
  if (config.heads % config.kv_heads != 0) {
    return make_error(Code::kInvalidArgument,
                      text.quoted("num_attention_heads") + " (" + std::to_string(config.heads) +
                          ") is not a multiple of " + text.quoted("num_key_value_heads") + " (" +
                          std::to_string(config.kv_heads) + ")");
  }
  if (config.heads / config.kv_heads > ops::kAttentionGroupMax) {
    return make_error(Code::kInvalidArgument,
                      text.quoted("num_attention_heads") + " (" + std::to_string(config.heads) +
                          ") is more than " + std::to_string(ops::kAttentionGroupMax) + " times " +
                          text.quoted("num_key_value_heads") + " (" +
                          std::to_string(config.kv_heads) + "); attention cannot do that");
  }

  const std::optional<int64_t> head_dim = TANDEM_TRY(text.integer("head_dim", kHeadDim));
  if (head_dim) {
    config.head_dim = *head_dim;
  } else if (config.family == ModelFamily::kQwen3) {
    config.head_dim = kQwen3HeadDimDefault;
  } else {
    config.head_dim = config.hidden_size / config.heads;
    if (config.hidden_size % config.heads != 0 || config.head_dim > kHeadDim.most) {
      return make_error(Code::kInvalidArgument,
                        text.quoted("head_dim") +
                            " is absent and hidden_size / "
                            "num_attention_heads is no usable value; add it");
    }
  }
  if (config.head_dim == 0 || config.head_dim % 2 != 0) {
    return make_error(Code::kInvalidArgument,
                      text.quoted("head_dim") + " is " + std::to_string(config.head_dim) +
                          "; rotary positions need an even number of dimensions");
  }
  return {};
}

/// Layers i with (i + 1) % decoder_sparse_step == 0 have experts, unless mlp_only_layers names
/// them.
Result<void> parse_experts(const JsonFields& text, ModelConfig& config) {
  config.layer_is_moe.assign(static_cast<size_t>(config.layers_count), false);
  if (config.family != ModelFamily::kQwen3Moe) return {};

  const std::optional<int64_t> experts = TANDEM_TRY(text.integer("num_experts", kExperts));
  const std::optional<int64_t> local = TANDEM_TRY(text.integer("num_local_experts", kExperts));
  if (experts && local && *experts != *local) {
    return make_error(Code::kInvalidArgument, text.quoted("num_experts") + " and " +
                                                  text.quoted("num_local_experts") +
                                                  " differ; they are two names of one value");
  }
  const int64_t experts_count = experts ? *experts : local.value_or(kExpertsDefault);
  const int64_t step = TANDEM_TRY(text.integer("decoder_sparse_step", kLayers)).value_or(1);
  const auto dense_layers =
      TANDEM_TRY(text.integers("mlp_only_layers", {0, config.layers_count - 1}));
  if (experts_count == 0) return {};

  config.experts_count = experts_count;
  config.moe_intermediate_size = TANDEM_TRY(text.integer("moe_intermediate_size", kIntermediate))
                                     .value_or(kMoeIntermediateDefault);
  config.experts_per_token = TANDEM_TRY(text.integer("num_experts_per_tok", {1, kExperts.most}))
                                 .value_or(kExpertsPerTokenDefault);
  if (config.experts_per_token > experts_count) {
    return make_error(Code::kInvalidArgument, text.quoted("num_experts_per_tok") + " (" +
                                                  std::to_string(config.experts_per_token) +
                                                  ") exceeds the " + std::to_string(experts_count) +
                                                  " experts");
  }
  if (experts_count * config.layers_count > kExpertsOfAllLayersMax) {
    return make_error(Code::kInvalidArgument,
                      std::to_string(config.layers_count) + " layers of " +
                          std::to_string(experts_count) + " experts exceed the limit of " +
                          std::to_string(kExpertsOfAllLayersMax) + " experts in all");
  }
  config.norm_topk_prob = TANDEM_TRY(text.boolean("norm_topk_prob")).value_or(false);
  for (int64_t i = step - 1; i < config.layers_count; i += step) {
    config.layer_is_moe[static_cast<size_t>(i)] = true;
  }
  if (dense_layers) {
    for (int64_t i : *dense_layers) config.layer_is_moe[static_cast<size_t>(i)] = false;
  }
  return {};
}

/// `text` holds the fields of the language model; `root` is the whole file, the same object unless
/// a wrapper is around it.
Result<ModelConfig> parse_nodes(const JsonFields& root, const JsonFields& text) {
  ModelConfig config;
  config.family = TANDEM_TRY(parse_family(text));
  TANDEM_TRY(refuse_quantized(root));
  TANDEM_TRY(refuse_quantized(text));

  const FamilyDefaults& defaults =
      config.family == ModelFamily::kQwen3 ? kQwen3Defaults : kQwen3MoeDefaults;
  config.hidden_size =
      TANDEM_TRY(text.integer("hidden_size", kHidden)).value_or(defaults.hidden_size);
  config.layers_count =
      TANDEM_TRY(text.integer("num_hidden_layers", kLayers)).value_or(defaults.layers_count);
  config.intermediate_size = TANDEM_TRY(text.integer("intermediate_size", kIntermediate))
                                 .value_or(defaults.intermediate_size);
  config.vocab_size =
      TANDEM_TRY(text.integer("vocab_size", kVocabulary)).value_or(kVocabularyDefault);
  config.max_position_embeddings =
      TANDEM_TRY(text.integer("max_position_embeddings", kPositions)).value_or(kPositionsDefault);
  config.rms_norm_eps = static_cast<float>(
      TANDEM_TRY(text.number("rms_norm_eps", {1e-30, 1})).value_or(kNormEpsilonDefault));
  TANDEM_TRY(refuse_variants(text, config.layers_count));
  TANDEM_TRY(parse_attention_shape(text, defaults, config));
  TANDEM_TRY(parse_experts(text, config));

  // These may stand on the wrapper only; for tying, the wrapper wins, as in transformers.
  const bool is_tied_below = TANDEM_TRY(text.boolean("tie_word_embeddings")).value_or(false);
  config.tie_word_embeddings =
      TANDEM_TRY(root.boolean("tie_word_embeddings")).value_or(is_tied_below);
  const bool has_dtype = text.has("dtype") || text.has("torch_dtype");
  config.checkpoint_dtype = TANDEM_TRY(parse_dtype(has_dtype ? text : root));
  config.eos_token_ids =
      TANDEM_TRY(parse_eos_ids(text.has("eos_token_id") ? text : root, config.vocab_size));
  config.rope = TANDEM_TRY(parse_rope_config(
      text,
      {.head_dim = config.head_dim, .max_position_embeddings = config.max_position_embeddings}));
  return config;
}

}  // namespace

Result<ModelConfig> parse_config(std::string_view json) {
  const Json document = TANDEM_TRY(parse_strict_json(json));
  if (!document.is_object()) {
    return make_error(Code::kInvalidArgument,
                      "a model config is a JSON object, not " + json_excerpt(document));
  }
  const JsonFields root(document);
  const Json* text = TANDEM_TRY(root.object("text_config"));
  if (text == nullptr) return parse_nodes(root, root);
  return parse_nodes(root, JsonFields(*text, "text_config."));
}

}  // namespace tandem::model
