#include "text/template_input.h"

#include <string_view>
#include <utility>

#include "text/python_whitespace.h"

namespace tandem::text {
namespace {

// The marker of transformers. Its trailing space shows whether the template trims the message.
constexpr std::string_view kMarker = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr std::string_view kMarkerTrimmed = kMarker.substr(0, kMarker.size() - 1);

Error invalid(std::string what) {
  return make_error(Code::kInvalidArgument, std::move(what));
}

Result<Json> parse_array_of_objects(const std::string& text, const std::string& where) {
  Json array = TANDEM_TRY(parse_json(text, where));
  if (!array.is_array()) return invalid(where + " must be an array of objects");
  for (size_t index = 0; index < array.size(); ++index) {
    if (!array[index].is_object()) {
      return invalid(where + "[" + std::to_string(index) + "] must be an object");
    }
  }
  return array;
}

// The message with its reasoning under the name that templates read, whatever the client used.
Json with_reasoning(Json message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end()) continue;
    const Json reasoning = *found;
    Json aliased = Json::object();
    auto& members = aliased.get_ref<Json::object_t&>();
    if (!message.contains("thinking")) members.push_back({"thinking", reasoning});
    const bool has_standard_name = message.contains("reasoning_content");
    for (auto& [key, value] : message.get_ref<Json::object_t&>()) {
      members.push_back({key, std::move(value)});
    }
    if (!has_standard_name) members.push_back({"reasoning_content", reasoning});
    return aliased;
  }
  return message;
}

Json prepare_message(Json& message) {
  Json prepared = Json::object();
  auto& members = prepared.get_ref<Json::object_t&>();
  for (auto& [key, value] : message.get_ref<Json::object_t&>()) {
    if (!value.is_null()) members.push_back({key, std::move(value)});
  }
  return with_reasoning(std::move(prepared));
}

bool is_assistant(const Json& message) {
  const auto role = message.find("role");
  return role != message.end() && *role == "assistant";
}

// Puts the marker behind the last text of the message and returns that text.
Result<std::string> mark_continued(Json& message) {
  const auto content = message.find("content");
  Json* text = content != message.end() && content->is_string() ? &*content : nullptr;
  if (content != message.end() && content->is_array()) {
    for (Json& part : *content) {
      if (!part.is_object()) continue;
      const auto found = part.find("text");
      if (found != part.end() && found->is_string()) text = &*found;
    }
  }
  if (text == nullptr) {
    return invalid(
        "continue_final_message needs a last message with content; send its text in content");
  }
  std::string original = text->get<std::string>();
  *text = original + std::string(kMarker);
  return original;
}

Result<Json> parse_variables(const std::string& text) {
  if (text.empty()) return Json::object();
  Json variables = TANDEM_TRY(parse_json(text, "chat_template_kwargs"));
  if (variables.is_null()) return Json::object();
  if (!variables.is_object()) return invalid("chat_template_kwargs must be an object");
  for (const std::string_view name : kOwnVariables) {
    if (variables.contains(name)) {
      return invalid("chat_template_kwargs may not hold " + std::string(name) +
                     "; set it in the request itself");
    }
  }
  return variables;
}

}  // namespace

Result<TemplateInput> prepare_template_input(const ChatInput& input) {
  if (input.continue_final_message && input.add_generation_prompt) {
    return invalid(
        "continue_final_message and add_generation_prompt exclude each other; set one to false");
  }
  TemplateInput prepared;
  prepared.add_generation_prompt = input.add_generation_prompt;
  Json messages = TANDEM_TRY(parse_array_of_objects(input.messages_json, "messages"));
  if (messages.empty()) return invalid("messages is empty; a chat needs at least one message");
  prepared.messages = Json::array();
  for (Json& message : messages) prepared.messages.push_back(prepare_message(message));
  if (input.continue_final_message) {
    prepared.continued_text = TANDEM_TRY(mark_continued(prepared.messages.back()));
  }
  for (Json& message : prepared.messages) {
    if (is_assistant(message) && !message.contains("content")) message["content"] = "";
  }
  if (!input.tools_json.empty() && input.tools_json != "null") {
    prepared.tools = TANDEM_TRY(parse_array_of_objects(input.tools_json, "tools"));
  }
  prepared.variables = TANDEM_TRY(parse_variables(input.variables_json));
  return prepared;
}

Result<void> cut_continued(const TemplateInput& input, RenderedPrompt& prompt) {
  if (!input.continued_text) return {};
  const std::string text = prompt.text();
  const size_t marker = text.rfind(kMarkerTrimmed);
  if (marker == std::string::npos ||
      text.find(strip_whitespace(*input.continued_text)) == std::string::npos) {
    return invalid(
        "continue_final_message: the chat template does not show the last message as it is, so "
        "it cannot be continued; send the message in the form that the template keeps");
  }
  size_t keep = marker;
  if (text.compare(marker, kMarker.size(), kMarker) != 0) {
    // The template trimmed the message, so that trailing whitespace of its own has to go too.
    keep = rstrip_whitespace(std::string_view(text).substr(0, marker)).size();
  }
  for (size_t index = 0; index < prompt.spans.size(); ++index) {
    std::string& span = prompt.spans[index].text;
    if (keep < span.size()) {
      span.resize(keep);
      prompt.spans.resize(keep == 0 ? index : index + 1);
      break;
    }
    keep -= span.size();
  }
  return {};
}

}  // namespace tandem::text
