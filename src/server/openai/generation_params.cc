#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "server/openai/parse_steps.h"

namespace tandem::server::openai {

namespace {

constexpr size_t kNameBytesMax = 1024;
constexpr size_t kStopsCountMax = 16;
constexpr size_t kStopBytesMax = 4096;
constexpr size_t kStopTokensCountMax = 64;
constexpr size_t kBiasCountMax = 1024;
// Longer salts would share no prefix at all, without anybody noticing.
constexpr size_t kSaltBytesMax = 256;
constexpr double kRepetitionPenaltyMin = 0.001;  // the engine's; a logit is divided by it
constexpr double kRepetitionPenaltyMax = 10.0;

void read_sampling(Fields& fields, const Rules& rules, GenerationParams& params) {
  engine::SamplingParams& sampling = params.sampling;
  const engine::SamplingParams& own = rules.sampling;
  sampling.temperature = static_cast<float>(
      fields.number("temperature", {.min = 0, .max = 2}).value_or(own.temperature));
  sampling.top_p = static_cast<float>(
      fields.number("top_p", {.min = 0, .max = 1, .above_min = true}).value_or(own.top_p));
  // A tiny top_p may round to zero; the most likely token alone is what it means.
  sampling.top_p = std::max(sampling.top_p, std::numeric_limits<float>::min());
  const int64_t top_k =
      fields.integer("top_k", -1, std::numeric_limits<int32_t>::max()).value_or(own.top_k);
  sampling.top_k = static_cast<int32_t>(std::max<int64_t>(top_k, 0));  // -1 also means all
  sampling.min_p =
      static_cast<float>(fields.number("min_p", {.min = 0, .max = 1}).value_or(own.min_p));
  sampling.presence_penalty =
      static_cast<float>(fields.number("presence_penalty", {.min = -2, .max = 2}).value_or(0));
  sampling.frequency_penalty =
      static_cast<float>(fields.number("frequency_penalty", {.min = -2, .max = 2}).value_or(0));
  const NumberRange repetition{.min = kRepetitionPenaltyMin, .max = kRepetitionPenaltyMax};
  sampling.repetition_penalty = static_cast<float>(
      fields.number("repetition_penalty", repetition).value_or(own.repetition_penalty));
  const auto seed = fields.integer("seed", std::numeric_limits<int64_t>::min(),
                                   std::numeric_limits<int64_t>::max());
  params.seeded = seed.has_value();
  sampling.seed = static_cast<uint64_t>(seed.value_or(0));
}

void read_logit_bias(Fields& fields, const Rules& rules, GenerationParams& params) {
  const Json* biases = fields.find("logit_bias");
  if (biases == nullptr) return;
  if (!biases->is_object()) return fields.fail_type("logit_bias", "an object", *biases);
  if (biases->size() > kBiasCountMax) {
    return fields.fail(
        invalid_field("logit_bias", "invalid_value",
                      fmt::format("\"logit_bias\" may have at most {} entries.", kBiasCountMax)));
  }
  for (const auto& [key, value] : biases->items()) {
    TokenId token = -1;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), token);
    // Printed again it must be the key: else "5" and "05" would both be there, and one be ignored.
    const bool is_plain = parsed.ec == std::errc() && fmt::to_string(token) == key;
    if (!is_plain || token < 0 || token >= rules.vocabulary_size) {
      return fields.fail(invalid_field(
          "logit_bias", "invalid_value",
          fmt::format("The keys of \"logit_bias\" must be token ids below {} in plain digits, but "
                      "one is \"{}\".",
                      rules.vocabulary_size, key.substr(0, 32))));
    }
    const std::string param = "logit_bias." + key;
    if (!value.is_number()) return fields.fail_type(param, "a number", value);
    const double bias = value.get<double>();
    if (!(bias >= -100 && bias <= 100)) {
      return fields.fail(
          invalid_field(param, "invalid_value",
                        fmt::format("\"{}\" must be from -100 to 100, but is {}.", param, bias)));
    }
    params.sampling.logit_bias.push_back({.token = token, .bias = static_cast<float>(bias)});
  }
}

void read_stops(Fields& fields, GenerationParams& params) {
  const Json* stop = fields.find("stop");
  if (stop == nullptr) return;
  const auto add = [&](const Json& text, const std::string& param) {
    if (!text.is_string()) return fields.fail_type(param, "a string", text);
    const auto& bytes = text.get_ref<const std::string&>();
    if (bytes.empty() || bytes.size() > kStopBytesMax) {
      return fields.fail(invalid_field(param, "invalid_value",
                                       fmt::format("\"{}\" must have 1 to {} bytes, but has {}.",
                                                   param, kStopBytesMax, bytes.size())));
    }
    params.stops.push_back(bytes);
  };
  if (!stop->is_array()) {
    if (!stop->is_string()) return fields.fail_type("stop", "a string or an array", *stop);
    return add(*stop, "stop");
  }
  if (stop->size() > kStopsCountMax) {
    return fields.fail(
        invalid_field("stop", "invalid_value",
                      fmt::format("\"stop\" may have at most {} strings, but has {}.",
                                  kStopsCountMax, stop->size())));
  }
  for (size_t i = 0; i < stop->size(); ++i) add((*stop)[i], fmt::format("stop[{}]", i));
}

void read_lengths(Fields& fields, GenerationParams& params) {
  constexpr int64_t kCountMax = std::numeric_limits<uint32_t>::max();
  const auto old_name = fields.integer("max_tokens", 1, kCountMax);
  const auto new_name = fields.integer("max_completion_tokens", 1, kCountMax);
  if (const auto tokens_max = new_name ? new_name : old_name) {
    params.tokens_max = static_cast<uint32_t>(*tokens_max);
  }
  const int64_t tokens_min = fields.integer("min_tokens", 0, kCountMax).value_or(0);
  params.tokens_min = static_cast<uint32_t>(tokens_min);
  if (params.tokens_max && params.tokens_min > *params.tokens_max) {
    fields.fail(invalid_field(
        "min_tokens", "invalid_value",
        fmt::format("\"min_tokens\" ({}) must not exceed the most tokens allowed ({}).",
                    params.tokens_min, *params.tokens_max)));
  }
}

void read_stream(Fields& fields, GenerationParams& params) {
  params.stream = fields.boolean("stream").value_or(false);
  const Json* options = fields.find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return fields.fail_type("stream_options", "an object", *options);
  if (!params.stream) {
    return fields.fail(invalid_field("stream_options", "invalid_value",
                                     "\"stream_options\" needs \"stream\": true."));
  }
  const auto include = options->find("include_usage");
  if (include == options->end() || include->is_null()) return;
  if (!include->is_boolean()) {
    return fields.fail_type("stream_options.include_usage", "true or false", *include);
  }
  params.include_usage = include->get<bool>();
}

}  // namespace

ApiResult<Json> parse_object(std::string_view body) {
  auto parsed = parse_json(body, {});
  if (const Json* json = std::get_if<Json>(&parsed); json != nullptr && !json->is_object()) {
    return invalid_field("", "invalid_json",
                         fmt::format("The request body must be a JSON object, but is a JSON {}.",
                                     json->type_name()));
  }
  return parsed;
}

std::string read_model(Fields& fields, const Rules& rules) {
  const auto name = fields.string("model", kNameBytesMax);
  if (!name) return rules.model_names.front();
  if (std::find(rules.model_names.begin(), rules.model_names.end(), *name) !=
      rules.model_names.end()) {
    return *name;
  }
  fields.fail({.status = 404,
               .message = fmt::format("The model \"{}\" is not served here. GET /v1/models lists "
                                      "what is; the first is \"{}\".",
                                      *name, rules.model_names.front()),
               .param = "model",
               .code = "model_not_found"});
  return rules.model_names.front();
}

std::vector<TokenId> read_token_ids(Fields& fields, const Json& array, const std::string& param,
                                    const Rules& rules) {
  std::vector<TokenId> tokens;
  tokens.reserve(array.size());
  for (const Json& item : array) {
    const auto token = whole_number(item);
    if (!token || *token < 0 || *token >= rules.vocabulary_size) {
      fields.fail(invalid_field(fmt::format("{}[{}]", param, tokens.size()), "invalid_value",
                                fmt::format("\"{}[{}]\" must be a token id from 0 to {}.", param,
                                            tokens.size(), rules.vocabulary_size - 1)));
      return {};
    }
    tokens.push_back(static_cast<TokenId>(*token));
  }
  return tokens;
}

GenerationParams read_generation_params(Fields& fields, const Rules& rules) {
  GenerationParams params;
  params.model = read_model(fields, rules);
  read_sampling(fields, rules, params);
  read_logit_bias(fields, rules, params);
  read_stops(fields, params);
  read_lengths(fields, params);
  read_stream(fields, params);
  params.n = static_cast<uint32_t>(fields.integer("n", 1, rules.n_max).value_or(1));
  params.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  params.include_stop = fields.boolean("include_stop_str_in_output").value_or(false);
  params.skip_special = fields.boolean("skip_special_tokens").value_or(true);
  params.cache_salt = fields.string("cache_salt", kSaltBytesMax).value_or("");
  fields.string("user", kNameBytesMax);  // accepted for compatibility; only its type is checked
  if (const Json* tokens = fields.find("stop_token_ids")) {
    if (!tokens->is_array()) {
      fields.fail_type("stop_token_ids", "an array", *tokens);
    } else if (tokens->size() > kStopTokensCountMax) {
      fields.fail(invalid_field(
          "stop_token_ids", "invalid_value",
          fmt::format("\"stop_token_ids\" may have at most {} ids.", kStopTokensCountMax)));
    } else {
      params.stop_tokens = read_token_ids(fields, *tokens, "stop_token_ids", rules);
    }
  }
  return params;
}

}  // namespace tandem::server::openai
