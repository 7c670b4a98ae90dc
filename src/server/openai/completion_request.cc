#include <fmt/format.h>

#include "server/openai/parse_steps.h"

namespace tandem::server::openai {

namespace {

/// OpenAI's default for this endpoint; chats may use the rest of the context.
constexpr uint32_t kTokensMaxDefault = 16;

/// A string, an array of ids, an array of strings, or an array of arrays of ids.
std::vector<PromptInput> read_prompts(Fields& fields, const Rules& rules) {
  std::vector<PromptInput> prompts;
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) {
    fields.fail(invalid_field("prompt", "missing_field", "\"prompt\" is missing."));
    return prompts;
  }
  if (prompt->is_string()) {
    prompts.emplace_back(prompt->get<std::string>());
    return prompts;
  }
  if (!prompt->is_array()) {
    fields.fail_type("prompt", "a string or an array", *prompt);
    return prompts;
  }
  if (prompt->empty()) {
    fields.fail(invalid_field("prompt", "invalid_value", "\"prompt\" is an empty array."));
    return prompts;
  }
  if (prompt->front().is_number()) {
    prompts.emplace_back(read_token_ids(fields, *prompt, "prompt", rules));
    return prompts;
  }
  if (prompt->size() > rules.choices_max) {
    fields.fail(invalid_field("prompt", "invalid_value",
                              fmt::format("\"prompt\" may hold at most {} prompts, but holds {}.",
                                          rules.choices_max, prompt->size())));
    return prompts;
  }
  for (size_t i = 0; i < prompt->size(); ++i) {
    const Json& item = (*prompt)[i];
    const std::string param = fmt::format("prompt[{}]", i);
    if (item.is_string()) {
      prompts.emplace_back(item.get<std::string>());
    } else if (item.is_array()) {
      prompts.emplace_back(read_token_ids(fields, item, param, rules));
    } else {
      fields.fail_type(param, "a string or an array of token ids", item);
    }
  }
  return prompts;
}

}  // namespace

ApiResult<CompletionRequest> parse_completion_request(std::string_view body, const Rules& rules) {
  auto parsed = parse_object(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  Fields fields(std::get<Json>(parsed));
  CompletionRequest request;
  request.params = read_generation_params(fields, rules);
  if (!request.params.tokens_max) {
    request.params.tokens_max = std::max(kTokensMaxDefault, request.params.tokens_min);
  }
  if (const auto count = fields.integer("logprobs", 0, kTopLogprobsMax)) {
    request.params.sampling.logprobs_count = static_cast<int32_t>(*count);
  }
  request.prompts = read_prompts(fields, rules);
  request.echo = fields.boolean("echo").value_or(false);
  if (request.echo && request.params.sampling.logprobs_count >= 0) {
    fields.fail(invalid_field("echo", "unsupported",
                              "\"echo\" with \"logprobs\" is not supported: the prompt's own "
                              "probabilities are not computed. Leave one out."));
  }
  if (request.prompts.size() * request.params.n > rules.choices_max) {
    fields.fail(
        invalid_field("n", "invalid_value",
                      fmt::format("{} prompts with \"n\": {} make more than {} choices.",
                                  request.prompts.size(), request.params.n, rules.choices_max)));
  }
  refuse_unsupported(fields);
  if (fields.error()) return *fields.error();
  return request;
}

}  // namespace tandem::server::openai
