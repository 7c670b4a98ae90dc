#include "model/rope_config.h"

#include <cmath>
#include <optional>
#include <string>

namespace tandem::model {
namespace {

constexpr double kFactorMax = 1e6;

/// The yarn paper's scale of attention for a context `factor` times as long.
double yarn_attention_scale(double factor, double weight) {
  return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

/// The object with the scaling keys, under whichever name the file has, and its name.
struct ScalingKeys {
  const Json* object = nullptr;  // null: neither is there
  const char* name = "";
};

Result<ScalingKeys> find_scaling_keys(const JsonFields& fields) {
  const Json* now = TANDEM_TRY(fields.object("rope_parameters"));
  const Json* old = TANDEM_TRY(fields.object("rope_scaling"));
  // transformers reads an empty object as absent.
  if (now != nullptr && now->empty()) now = nullptr;
  if (old != nullptr && old->empty()) old = nullptr;
  if (now != nullptr && old != nullptr && *now != *old) {
    // transformers 5 would take rope_scaling and lose the theta of rope_parameters.
    return make_error(Code::kInvalidArgument, fields.quoted("rope_parameters") + " and " +
                                                  fields.quoted("rope_scaling") +
                                                  " are both given and differ; keep one of them");
  }
  if (now != nullptr) return ScalingKeys{now, "rope_parameters"};
  return ScalingKeys{old, "rope_scaling"};
}

Result<std::string> rope_type(const JsonFields& keys) {
  std::optional<std::string> type = TANDEM_TRY(keys.string("rope_type"));
  if (!type) type = TANDEM_TRY(keys.string("type"));
  if (type) return *type;
  if (keys.has("factor")) {
    return make_error(Code::kInvalidArgument, keys.quoted("factor") + " is given without " +
                                                  keys.quoted("rope_type") +
                                                  "; say \"yarn\" or \"linear\"");
  }
  return std::string("default");
}

Result<void> parse_yarn(const JsonFields& fields, const JsonFields& keys,
                        const RopeContext& context, RopeConfig& rope) {
  constexpr JsonFields::Range<int64_t> kPositions{1, int64_t{1} << 24};
  // transformers lets a value outside the scaling object win.
  std::optional<int64_t> original =
      TANDEM_TRY(fields.integer("original_max_position_embeddings", kPositions));
  if (!original)
    original = TANDEM_TRY(keys.integer("original_max_position_embeddings", kPositions));
  rope.original_max_position = original.value_or(context.max_position_embeddings);

  const std::optional<double> factor = TANDEM_TRY(keys.number("factor", {1, kFactorMax}));
  if (!factor && !original) {
    return make_error(Code::kInvalidArgument, "yarn needs " + keys.quoted("factor") + " or " +
                                                  keys.quoted("original_max_position_embeddings"));
  }
  rope.factor = factor.value_or(static_cast<double>(context.max_position_embeddings) /
                                static_cast<double>(rope.original_max_position));

  // Zero stands for "not given", as in transformers.
  const double beta_fast = TANDEM_TRY(keys.number("beta_fast", {0, kFactorMax})).value_or(0);
  const double beta_slow = TANDEM_TRY(keys.number("beta_slow", {0, kFactorMax})).value_or(0);
  if (beta_fast != 0) rope.beta_fast = beta_fast;
  if (beta_slow != 0) rope.beta_slow = beta_slow;
  if (rope.beta_fast < rope.beta_slow) {
    return make_error(Code::kInvalidArgument, keys.quoted("beta_fast") + " is smaller than " +
                                                  keys.quoted("beta_slow") + "; exchange them");
  }
  rope.truncate = TANDEM_TRY(keys.boolean("truncate")).value_or(true);

  const std::optional<double> attention =
      TANDEM_TRY(keys.number("attention_factor", {0, kFactorMax}));
  const double mscale = TANDEM_TRY(keys.number("mscale", {0, kFactorMax})).value_or(0);
  const double mscale_all = TANDEM_TRY(keys.number("mscale_all_dim", {0, kFactorMax})).value_or(0);
  if (attention) {
    rope.attention_factor = *attention;
  } else if (mscale != 0 && mscale_all != 0) {
    rope.attention_factor =
        yarn_attention_scale(rope.factor, mscale) / yarn_attention_scale(rope.factor, mscale_all);
  } else {
    rope.attention_factor = yarn_attention_scale(rope.factor, 1);
  }
  return {};
}

}  // namespace

Result<RopeConfig> parse_rope_config(const JsonFields& fields, const RopeContext& context) {
  // Above 1, since yarn divides by its logarithm; every released model has at least 10000.
  constexpr JsonFields::Range<double> kTheta{1.000001, 1e15};
  constexpr JsonFields::Range<double> kFraction{0, 1};

  const ScalingKeys scaling = TANDEM_TRY(find_scaling_keys(fields));
  const Json empty = Json::object();
  const JsonFields keys(scaling.object != nullptr ? *scaling.object : empty,
                        std::string(scaling.name) + ".");
  for (const char* layer_type : {"full_attention", "sliding_attention"}) {
    if (keys.has(layer_type)) {
      return make_error(
          Code::kUnimplemented,
          keys.quoted(layer_type) + ": rotary parameters that differ by layer are not supported");
    }
  }

  RopeConfig rope;
  std::optional<double> theta = TANDEM_TRY(keys.number("rope_theta", kTheta));
  if (!theta) theta = TANDEM_TRY(fields.number("rope_theta", kTheta));
  if (!theta) {
    return make_error(
        Code::kInvalidArgument,
        fields.quoted("rope_theta") +
            " is absent, also inside \"rope_parameters\"; add the value the model was "
            "trained with (a guess would load but answer nonsense)");
  }
  rope.theta = *theta;

  std::optional<double> fraction = TANDEM_TRY(keys.number("partial_rotary_factor", kFraction));
  if (!fraction) fraction = TANDEM_TRY(fields.number("partial_rotary_factor", kFraction));
  if (fraction.value_or(1) != 1) {
    return make_error(Code::kUnimplemented,
                      "\"partial_rotary_factor\" other than 1 is not part of this model family");
  }
  rope.rotary_dim = context.head_dim;

  const std::string type = TANDEM_TRY(rope_type(keys));
  if (type == "default") return rope;
  if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::kLinear;
    const std::optional<double> factor = TANDEM_TRY(keys.number("factor", {1, kFactorMax}));
    if (!factor) {
      return make_error(Code::kInvalidArgument, "linear scaling needs " + keys.quoted("factor"));
    }
    rope.factor = *factor;
    return rope;
  }
  if (type == "yarn") {
    rope.scaling = RopeConfig::Scaling::kYarn;
    TANDEM_TRY(parse_yarn(fields, keys, context, rope));
    return rope;
  }
  return make_error(Code::kUnimplemented, keys.quoted("rope_type") + " is " + json_excerpt(type) +
                                              "; supported are default, linear and yarn");
}

}  // namespace tandem::model
