#include "server/openai/parse_steps.h"

namespace tandem::server::openai {

ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const Rules& rules) {
  auto parsed = parse_object(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  Fields fields(std::get<Json>(parsed));
  TokenizeRequest request;
  read_model(fields, rules);
  request.with_strings = fields.boolean("return_token_strs").value_or(false);
  if (fields.find("messages") != nullptr) {
    request.input = read_chat_input(fields);
  } else if (const auto prompt = fields.string("prompt", body.size())) {
    request.input = *prompt;
  } else {
    fields.fail(invalid_field("prompt", "missing_field",
                              "Either \"prompt\" (a string) or \"messages\" is needed."));
  }
  if (fields.error()) return *fields.error();
  return request;
}

ApiResult<std::vector<TokenId>> parse_detokenize_request(std::string_view body,
                                                         const Rules& rules) {
  auto parsed = parse_object(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  Fields fields(std::get<Json>(parsed));
  read_model(fields, rules);
  std::vector<TokenId> tokens;
  const Json* array = fields.find("tokens");
  if (array == nullptr) {
    fields.fail(invalid_field("tokens", "missing_field", "\"tokens\" is missing."));
  } else if (!array->is_array()) {
    fields.fail_type("tokens", "an array of token ids", *array);
  } else {
    tokens = read_token_ids(fields, *array, "tokens", rules);
  }
  if (fields.error()) return *fields.error();
  return tokens;
}

}  // namespace tandem::server::openai
