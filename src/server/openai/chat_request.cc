#include <fmt/format.h>

#include <algorithm>

#include "server/openai/parse_steps.h"

namespace tandem::server::openai {

namespace {

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};

/// A member of the field `param`, or nullptr after it was reported as missing.
const Json* require(Fields& fields, const Json& object, std::string_view name,
                    const std::string& param) {
  const auto member = object.find(name);
  if (member != object.end() && !member->is_null()) return &*member;
  const std::string path = fmt::format("{}.{}", param, name);
  fields.fail(invalid_field(path, "missing_field", fmt::format("\"{}\" is missing.", path)));
  return nullptr;
}

/// The same for one that must be a string.
const std::string* require_string(Fields& fields, const Json& object, std::string_view name,
                                  const std::string& param) {
  const Json* member = require(fields, object, name, param);
  if (member == nullptr) return nullptr;
  if (member->is_string()) return &member->get_ref<const std::string&>();
  fields.fail_type(fmt::format("{}.{}", param, name), "a string", *member);
  return nullptr;
}

/// Joins the text parts of a content list, as templates take a string. Other kinds of part would
/// be lost without notice, so they are refused.
std::string join_parts(Fields& fields, const Json& parts, const std::string& param) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Json& part = parts[i];
    const std::string part_param = fmt::format("{}[{}]", param, i);
    if (!part.is_object()) {
      fields.fail_type(part_param, "an object", part);
      return {};
    }
    const auto type = part.find("type");
    if (type == part.end() || *type != Json("text")) {
      fields.fail(invalid_field(
          part_param + ".type", "unsupported",
          fmt::format("\"{}.type\" must be \"text\": this model reads no images, audio or files.",
                      part_param)));
      return {};
    }
    const auto body = part.find("text");
    if (body == part.end() || !body->is_string()) {
      fields.fail(invalid_field(part_param + ".text", "invalid_type",
                                fmt::format("\"{}.text\" must be a string.", part_param)));
      return {};
    }
    if (i > 0) text += '\n';
    text += body->get_ref<const std::string&>();
  }
  return text;
}

/// Checks one message and turns its content into a string.
void normalise_message(Fields& fields, Json& message, const std::string& param) {
  if (!message.is_object()) return fields.fail_type(param, "an object", message);
  const std::string* role = require_string(fields, message, "role", param);
  if (role == nullptr) return;
  if (std::find(std::begin(kRoles), std::end(kRoles), *role) == std::end(kRoles)) {
    return fields.fail(invalid_field(
        param + ".role", "invalid_value",
        fmt::format("\"{}.role\" must be system, developer, user, assistant or tool.", param)));
  }
  const bool calls_tools = message.contains("tool_calls") && !message["tool_calls"].is_null();
  const std::string content_param = param + ".content";
  const auto content = message.find("content");
  if (content == message.end()) {
    if (!calls_tools) {
      return fields.fail(invalid_field(content_param, "missing_field",
                                       fmt::format("\"{}\" is missing.", content_param)));
    }
    message["content"] = "";
  } else if (content->is_null()) {
    *content = "";
  } else if (content->is_array()) {
    *content = join_parts(fields, *content, content_param);
  } else if (!content->is_string()) {
    fields.fail_type(content_param, "a string, null or an array of text parts", *content);
  }
  if (calls_tools && !message["tool_calls"].is_array()) {
    fields.fail_type(param + ".tool_calls", "an array", message["tool_calls"]);
  }
}

std::string read_messages(Fields& fields) {
  const Json* given = fields.find("messages");
  if (given == nullptr) {
    fields.fail(invalid_field("messages", "missing_field", "\"messages\" is missing."));
    return "[]";
  }
  if (!given->is_array()) {
    fields.fail_type("messages", "an array", *given);
    return "[]";
  }
  if (given->empty()) {
    fields.fail(invalid_field("messages", "invalid_value",
                              "\"messages\" is empty: at least one message is needed."));
  }
  Json messages = *given;
  for (size_t i = 0; i < messages.size(); ++i) {
    normalise_message(fields, messages[i], fmt::format("messages[{}]", i));
  }
  return messages.dump();
}

/// Checks what templates print, because a model that is told of half a tool answers oddly.
void check_tool(Fields& fields, const Json& tool, const std::string& param) {
  if (!tool.is_object()) return fields.fail_type(param, "an object", tool);
  const std::string* type = require_string(fields, tool, "type", param);
  if (type == nullptr) return;
  if (*type != "function") {
    return fields.fail(invalid_field(
        param + ".type", "unsupported",
        fmt::format("\"{}.type\" must be \"function\": there are no other tools here.", param)));
  }
  const Json* function = require(fields, tool, "function", param);
  if (function == nullptr) return;
  const std::string function_param = param + ".function";
  if (!function->is_object()) return fields.fail_type(function_param, "an object", *function);
  const std::string* name = require_string(fields, *function, "name", function_param);
  if (name != nullptr && name->empty()) {
    fields.fail(invalid_field(function_param + ".name", "invalid_value",
                              fmt::format("\"{}.name\" must not be empty: the model calls the "
                                          "function by it.",
                                          function_param)));
  }
  const auto parameters = function->find("parameters");
  if (parameters != function->end() && !parameters->is_null() && !parameters->is_object()) {
    fields.fail_type(function_param + ".parameters", "an object", *parameters);
  }
}

std::string read_tools(Fields& fields) {
  const Json* tools = fields.find("tools");
  if (tools == nullptr) return "";
  if (!tools->is_array()) {
    fields.fail_type("tools", "an array", *tools);
    return "";
  }
  for (size_t i = 0; i < tools->size(); ++i) {
    check_tool(fields, (*tools)[i], fmt::format("tools[{}]", i));
  }
  // With "none" the model must not call a tool: it is not told of any.
  const Json* choice = fields.find("tool_choice");
  const bool none = choice != nullptr && *choice == Json("none");
  return none || tools->empty() ? "" : tools->dump();
}

void read_logprobs(Fields& fields, GenerationParams& params) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, kTopLogprobsMax);
  if (top && !wanted && *top > 0) {
    fields.fail(invalid_field("top_logprobs", "invalid_value",
                              "\"top_logprobs\" needs \"logprobs\": true."));
  }
  if (wanted) params.sampling.logprobs_count = static_cast<int32_t>(top.value_or(0));
}

/// Variables of the template, as JSON text; "" for none.
std::string read_variables(Fields& fields) {
  const Json* variables = fields.find("chat_template_kwargs");
  if (variables == nullptr) return "";
  if (!variables->is_object()) {
    fields.fail_type("chat_template_kwargs", "an object", *variables);
    return "";
  }
  for (const std::string_view name : text::kOwnVariables) {
    if (!variables->contains(name)) continue;
    const std::string param = fmt::format("chat_template_kwargs.{}", name);
    fields.fail(invalid_field(
        param, "invalid_value",
        fmt::format("\"{}\" is not allowed: set \"{}\" in the request itself.", param, name)));
  }
  return variables->dump();
}

}  // namespace

text::ChatInput read_chat_input(Fields& fields) {
  text::ChatInput input;
  input.messages_json = read_messages(fields);
  input.tools_json = read_tools(fields);
  input.variables_json = read_variables(fields);
  input.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  const auto add_prompt = fields.boolean("add_generation_prompt");
  if (input.continue_final_message && add_prompt.value_or(false)) {
    fields.fail(invalid_field("add_generation_prompt", "invalid_value",
                              "\"add_generation_prompt\" and \"continue_final_message\" exclude "
                              "each other."));
  }
  input.add_generation_prompt = add_prompt.value_or(!input.continue_final_message);
  return input;
}

ApiResult<ChatRequest> parse_chat_request(std::string_view body, const Rules& rules) {
  auto parsed = parse_object(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  Fields fields(std::get<Json>(parsed));
  ChatRequest request;
  request.params = read_generation_params(fields, rules);
  read_logprobs(fields, request.params);
  request.input = read_chat_input(fields);
  refuse_unsupported(fields);
  if (fields.error()) return *fields.error();
  return request;
}

}  // namespace tandem::server::openai
