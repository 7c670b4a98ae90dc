#include "server/openai/prepare.h"

#include <fmt/format.h>

#include "server/openai/json_text.h"

namespace tandem::server::openai {

namespace {

ApiResult<std::vector<TokenId>> encode_chat(const text::ChatInput& input,
                                            const TextServices& services) {
  if (services.chat_template == nullptr) {
    return invalid_field("messages", "unsupported",
                         "This model has no chat template. Use POST /v1/completions.");
  }
  const Result<text::RenderedPrompt> rendered = services.chat_template->render(input);
  if (!rendered.ok()) {
    ApiError error = api_error(rendered.error());
    if (error.status == 400) error.param = "messages";
    return error;
  }
  return rendered->encode(services.tokenizer);
}

std::optional<ApiError> check_length(const std::vector<TokenId>& tokens, const std::string& param,
                                     const Rules& rules) {
  if (tokens.empty()) {
    return invalid_field(param, "invalid_value",
                         fmt::format("\"{}\" is empty: at least one token is needed.", param));
  }
  if (tokens.size() < rules.model_length_max) return {};
  return invalid_field(
      param, "context_length_exceeded",
      fmt::format("\"{}\" has {} tokens, but the model reads at most {} and needs room for an "
                  "answer. Shorten it.",
                  param, tokens.size(), rules.model_length_max));
}

ApiResult<Prepared> prepare_chat(std::string_view body, const TextServices& services) {
  auto parsed = parse_chat_request(body, services.rules);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  auto& request = std::get<ChatRequest>(parsed);
  auto encoded = encode_chat(request.input, services);
  if (auto* error = std::get_if<ApiError>(&encoded)) return std::move(*error);
  auto& tokens = std::get<std::vector<TokenId>>(encoded);
  if (auto error = check_length(tokens, "messages", services.rules)) return std::move(*error);
  Prepared prepared{.params = std::move(request.params), .prompts = {}};
  prepared.prompts.push_back({.tokens = std::move(tokens), .echo = {}});
  return prepared;
}

ApiResult<Prepared> prepare_completion(std::string_view body, const TextServices& services) {
  auto parsed = parse_completion_request(body, services.rules);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  auto& request = std::get<CompletionRequest>(parsed);
  Prepared prepared{.params = std::move(request.params), .prompts = {}};
  for (PromptInput& input : request.prompts) {
    PreparedPrompt& prompt = prepared.prompts.emplace_back();
    if (auto* text = std::get_if<std::string>(&input)) {
      prompt.tokens = services.tokenizer.encode(*text, text::ControlTokens::kRecognise);
      if (request.echo) prompt.echo = std::move(*text);
    } else {
      prompt.tokens = std::move(std::get<std::vector<TokenId>>(input));
      if (request.echo) {
        prompt.echo = services.tokenizer.decode(prompt.tokens, prepared.params.skip_special);
      }
    }
    const std::string param = request.prompts.size() == 1
                                  ? std::string("prompt")
                                  : fmt::format("prompt[{}]", prepared.prompts.size() - 1);
    if (auto error = check_length(prompt.tokens, param, services.rules)) return std::move(*error);
  }
  return prepared;
}

}  // namespace

ApiResult<Prepared> prepare(Endpoint endpoint, std::string_view body,
                            const TextServices& services) {
  return endpoint == Endpoint::kChat ? prepare_chat(body, services)
                                     : prepare_completion(body, services);
}

ApiResult<std::string> tokenize(std::string_view body, const TextServices& services) {
  auto parsed = parse_tokenize_request(body, services.rules);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  const auto& request = std::get<TokenizeRequest>(parsed);
  std::vector<TokenId> tokens;
  if (const auto* prompt = std::get_if<std::string>(&request.input)) {
    tokens = services.tokenizer.encode(*prompt, text::ControlTokens::kRecognise);
  } else {
    auto encoded = encode_chat(std::get<text::ChatInput>(request.input), services);
    if (auto* error = std::get_if<ApiError>(&encoded)) return std::move(*error);
    tokens = std::move(std::get<std::vector<TokenId>>(encoded));
  }
  std::string json = "{\"count\":";
  append_json_integer(json, static_cast<int64_t>(tokens.size()));
  json += ",\"max_model_len\":";
  append_json_integer(json, services.rules.model_length_max);
  json += ",\"tokens\":[";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) json += ',';
    append_json_integer(json, tokens[i]);
  }
  json += ']';
  if (request.with_strings) {
    json += ",\"token_strs\":[";
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) json += ',';
      append_json_string(json, services.tokenizer.token_bytes(tokens[i]));
    }
    json += ']';
  }
  json += '}';
  return json;
}

ApiResult<std::string> detokenize(std::string_view body, const TextServices& services) {
  auto parsed = parse_detokenize_request(body, services.rules);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  std::string json = "{\"prompt\":";
  append_json_string(json,
                     services.tokenizer.decode(std::get<std::vector<TokenId>>(parsed), false));
  json += '}';
  return json;
}

}  // namespace tandem::server::openai
