#include <fmt/format.h>

#include <algorithm>

#include "server/openai/parse_steps.h"

namespace tandem::server::openai {

namespace {

/// Fields that change what the answer must be. Any value but null, false, [] and {} is refused.
constexpr std::string_view kUnsupported[] = {
    "suffix",
    "audio",
    "functions",
    "function_call",
    "use_beam_search",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "json_schema",
    "grammar",
    "regex",
    "ebnf",
    "prompt_logprobs",
    "bad_words",
    "logits_processors",
    "web_search_options",
    "allowed_token_ids",
    "truncate_prompt_tokens",
    "chat_template",
    "documents",
    "lora_path",
};

bool asks_for_nothing(const Json& value) {
  return value == Json(false) || value == Json("") ||
         ((value.is_array() || value.is_object()) && value.empty());
}

void refuse(Fields& fields, std::string_view name, std::string_view why) {
  fields.fail(invalid_field(std::string(name), "unsupported",
                            fmt::format("\"{}\" is not supported{}. Leave it out.", name, why)));
}

}  // namespace

void refuse_unsupported(Fields& fields) {
  for (const std::string_view name : kUnsupported) {
    const Json* value = fields.find(name);
    if (value != nullptr && !asks_for_nothing(*value)) refuse(fields, name, "");
  }
  if (const Json* format = fields.find("response_format")) {
    if (!format->is_object()) {
      fields.fail_type("response_format", "an object", *format);
    } else if (format->value("type", Json()) != Json("text")) {
      refuse(fields, "response_format", R"( except {"type": "text"})");
    }
  }
  if (const Json* choice = fields.find("tool_choice")) {
    if (*choice != Json("auto") && *choice != Json("none")) {
      refuse(fields, "tool_choice", R"( except "auto" and "none")");
    }
  }
  if (const Json* kinds = fields.find("modalities")) {
    if (*kinds != Json::array({"text"})) refuse(fields, "modalities", R"( except ["text"])");
  }
  if (const Json* best_of = fields.find("best_of")) {
    const Json* n = fields.find("n");
    if (*best_of != (n == nullptr ? Json(1) : *n)) {
      refuse(fields, "best_of", " beyond the value of \"n\"");
    }
  }
}

}  // namespace tandem::server::openai
