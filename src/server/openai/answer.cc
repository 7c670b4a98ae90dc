#include "server/openai/answer.h"

#include "server/openai/json_text.h"

namespace tandem::server::openai {

namespace {

void append_head(std::string& json, const AnswerHead& head, bool chunk) {
  json += "{\"id\":";
  append_json_string(json, head.id);
  json += ",\"object\":\"";
  json += head.endpoint == Endpoint::kCompletion ? "text_completion"
          : chunk                                ? "chat.completion.chunk"
                                                 : "chat.completion";
  json += "\",\"created\":";
  append_json_integer(json, head.created);
  json += ",\"model\":";
  append_json_string(json, head.model);
  json += ",\"choices\":[";
}

void append_usage(std::string& json, const Usage& usage) {
  json += ",\"usage\":{\"prompt_tokens\":";
  append_json_integer(json, static_cast<int64_t>(usage.prompt_tokens));
  json += ",\"completion_tokens\":";
  append_json_integer(json, static_cast<int64_t>(usage.completion_tokens));
  json += ",\"total_tokens\":";
  append_json_integer(json, static_cast<int64_t>(usage.prompt_tokens + usage.completion_tokens));
  json += ",\"prompt_tokens_details\":{\"cached_tokens\":";
  append_json_integer(json, static_cast<int64_t>(usage.cached_tokens));
  json += "}}";
}

/// The text under the key that the endpoint and the kind of answer use.
void append_text(std::string& json, const AnswerHead& head, const ChoicePart& part, bool chunk) {
  if (head.endpoint == Endpoint::kCompletion) {
    json += "\"text\":";
    append_json_string(json, part.text);
    return;
  }
  json += chunk ? "\"delta\":{" : "\"message\":{";
  const bool names_role = part.opens || !chunk;
  if (names_role) json += "\"role\":\"assistant\"";
  if (names_role || !part.text.empty()) {
    json += names_role ? ",\"content\":" : "\"content\":";
    append_json_string(json, part.text);
  }
  json += '}';
}

void append_choice(std::string& json, const AnswerHead& head, const ChoicePart& part, bool chunk) {
  json += "{\"index\":";
  append_json_integer(json, part.index);
  json += ',';
  append_text(json, head, part, chunk);
  json += ",\"logprobs\":";
  json += part.logprobs_json.empty() ? "null" : part.logprobs_json;
  json += ",\"finish_reason\":";
  if (part.finish_reason == nullptr) {
    json += "null";
  } else {
    append_json_string(json, part.finish_reason);
  }
  json += '}';
}

}  // namespace

void append_chunk(std::string& output, const AnswerHead& head, const ChoicePart& part,
                  bool with_usage) {
  output += "data: ";
  append_head(output, head, true);
  append_choice(output, head, part, true);
  output += with_usage ? "],\"usage\":null}\n\n" : "]}\n\n";
}

void append_usage_chunk(std::string& output, const AnswerHead& head, const Usage& usage) {
  output += "data: ";
  append_head(output, head, true);
  output += ']';
  append_usage(output, usage);
  output += "}\n\n";
}

void append_error_event(std::string& output, const ApiError& error) {
  output += "data: ";
  output += to_json(error);
  output += "\n\n";
}

void append_done(std::string& output) {
  output += "data: [DONE]\n\n";
}

std::string answer_json(const AnswerHead& head, const std::vector<ChoicePart>& choices,
                        const Usage& usage) {
  std::string json;
  append_head(json, head, false);
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) json += ',';
    append_choice(json, head, choices[i], false);
  }
  json += ']';
  append_usage(json, usage);
  json += '}';
  return json;
}

}  // namespace tandem::server::openai
