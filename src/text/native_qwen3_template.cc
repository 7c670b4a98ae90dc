#include "text/native_qwen3_template.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <string>
#include <utility>

#include "text/python_json.h"
#include "text/python_whitespace.h"
#include "text/template_input.h"

namespace tandem::text {
namespace {

constexpr std::string_view kToolsIntroduction =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
    "provided with function signatures within <tools></tools> XML tags:\n<tools>";
constexpr std::string_view kToolsInstruction =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "
    "\"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n";

Error invalid(std::string what) {
  return make_error(Code::kInvalidArgument, std::move(what));
}

std::string place(size_t message, const std::string& rest = "") {
  return "messages[" + std::to_string(message) + "]" + rest;
}

/// Collects spans; neighbours of one origin become one.
class Writer {
 public:
  Writer& constant(std::string_view text) { return add(text, false); }
  Writer& client(std::string_view text) { return add(text, true); }
  RenderedPrompt take() { return std::move(prompt_); }

 private:
  Writer& add(std::string_view text, bool from_client) {
    if (text.empty()) return *this;
    auto& spans = prompt_.spans;
    if (spans.empty() || spans.back().from_client != from_client) {
      spans.push_back({std::string(), from_client});
    }
    spans.back().text += text;
    return *this;
  }

  RenderedPrompt prompt_;
};

std::string_view role_of(const Json& message) {
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) return "";
  return role->get_ref<const std::string&>();
}

/// A text member that must be there.
Result<std::string_view> text_member(const Json& object, const char* name,
                                     const std::string& object_place) {
  const auto member = object.find(name);
  if (member == object.end() || !member->is_string()) {
    return invalid(object_place + "." + name + " must be a string");
  }
  return std::string_view(member->get_ref<const std::string&>());
}

/// What an assistant message says and what it thought.
struct AssistantText {
  std::string_view content;
  std::string_view reasoning;
};

Result<AssistantText> split_assistant(const Json& message, size_t index) {
  AssistantText text;
  text.content = TANDEM_TRY(text_member(message, "content", place(index)));
  if (message.contains("reasoning_content")) {
    text.reasoning = TANDEM_TRY(text_member(message, "reasoning_content", place(index)));
    return text;
  }
  constexpr std::string_view kOpen = "<think>";
  constexpr std::string_view kClose = "</think>";
  const std::string_view whole = text.content;
  const size_t first_close = whole.find(kClose);
  if (first_close == std::string_view::npos) return text;
  text.content = lstrip(whole.substr(whole.rfind(kClose) + kClose.size()), '\n');
  std::string_view thought = rstrip(whole.substr(0, first_close), '\n');
  const size_t last_open = thought.rfind(kOpen);
  if (last_open != std::string_view::npos) thought.remove_prefix(last_open + kOpen.size());
  text.reasoning = lstrip(thought, '\n');
  return text;
}

Result<void> write_arguments(const Json& call, const std::string& call_place, Writer& writer) {
  const auto arguments = call.find("arguments");
  if (arguments == call.end()) {
    return invalid(call_place + ".arguments is missing; send a JSON string or an object");
  }
  if (arguments->is_string()) {
    writer.client(arguments->get_ref<const std::string&>());
  } else {
    writer.client(dump_json(*arguments));
  }
  return {};
}

Result<void> write_tool_calls(const Json& message, size_t index, bool has_content, Writer& writer) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end()) return {};
  if (!calls->is_array()) return invalid(place(index, ".tool_calls must be an array of objects"));
  bool needs_line_end = has_content;
  for (size_t number = 0; number < calls->size(); ++number) {
    const std::string call_place = place(index, ".tool_calls[" + std::to_string(number) + "]");
    const Json* call = &(*calls)[number];
    if (!call->is_object()) return invalid(call_place + " must be an object");
    const auto function = call->find("function");
    if (function != call->end() && !function->is_null()) {
      if (!function->is_object()) return invalid(call_place + ".function must be an object");
      if (!function->empty()) call = &*function;
    }
    if (needs_line_end) writer.constant("\n");
    needs_line_end = true;
    const std::string_view name =
        call->contains("name") ? TANDEM_TRY(text_member(*call, "name", call_place)) : "";
    writer.constant("<tool_call>\n{\"name\": \"").client(name).constant("\", \"arguments\": ");
    TANDEM_TRY(write_arguments(*call, call_place, writer));
    writer.constant("}\n</tool_call>");
  }
  return {};
}

class NativeQwen3Template final : public ChatTemplate {
 public:
  explicit NativeQwen3Template(size_t output_bytes_max) : output_bytes_max_(output_bytes_max) {}

  Result<RenderedPrompt> render(const ChatInput& input) override {
    const TemplateInput prepared = TANDEM_TRY(prepare_template_input(input));
    RenderedPrompt prompt = TANDEM_TRY(Rendering{prepared}.run());
    TANDEM_TRY(cut_continued(prepared, prompt));
    size_t bytes = 0;
    for (const auto& span : prompt.spans) bytes += span.text.size();
    if (bytes > output_bytes_max_) {
      return make_error(Code::kInvalidArgument,
                        "the rendered prompt has " + std::to_string(bytes) + " bytes, more than " +
                            std::to_string(output_bytes_max_) + "; send less text");
    }
    return prompt;
  }

 private:
  struct Rendering {
    const TemplateInput& input;
    Writer writer{};
    size_t last_query = 0;

    const Json& message(size_t index) const { return input.messages[index]; }
    size_t count() const { return input.messages.size(); }

    Result<RenderedPrompt> run() {
      TANDEM_TRY(write_head());
      TANDEM_TRY(find_last_query());
      for (size_t index = 0; index < count(); ++index) {
        const std::string_view role = role_of(message(index));
        if (role == "user" || (role == "system" && index > 0)) {
          TANDEM_TRY(write_plain(index, role));
        } else if (role == "assistant") {
          TANDEM_TRY(write_assistant(index));
        } else if (role == "tool") {
          TANDEM_TRY(write_tool_result(index));
        }
      }
      if (input.add_generation_prompt) write_generation_prompt();
      return writer.take();
    }

    Result<void> write_head() {
      const bool has_system = role_of(message(0)) == "system";
      std::string_view system;
      if (has_system) system = TANDEM_TRY(text_member(message(0), "content", place(0)));
      if (!input.tools.is_array() || input.tools.empty()) {
        if (has_system) writer.constant("<|im_start|>system\n").client(system);
        if (has_system) writer.constant("<|im_end|>\n");
        return {};
      }
      writer.constant("<|im_start|>system\n");
      if (has_system) writer.client(system).constant("\n\n");
      writer.constant(kToolsIntroduction);
      for (const Json& tool : input.tools) writer.constant("\n").client(dump_json(tool));
      writer.constant(kToolsInstruction);
      return {};
    }

    /// The last user message that is not a tool's answer; thinking after it is kept.
    Result<void> find_last_query() {
      last_query = count() - 1;
      for (size_t index = count(); index-- > 0;) {
        if (role_of(message(index)) != "user") continue;
        const std::string_view content =
            TANDEM_TRY(text_member(message(index), "content", place(index)));
        if (content.starts_with("<tool_response>") && content.ends_with("</tool_response>")) {
          continue;
        }
        last_query = index;
        return {};
      }
      return {};
    }

    Result<void> write_plain(size_t index, std::string_view role) {
      const std::string_view content =
          TANDEM_TRY(text_member(message(index), "content", place(index)));
      writer.constant("<|im_start|>").client(role).constant("\n");
      writer.client(content).constant("<|im_end|>\n");
      return {};
    }

    Result<void> write_assistant(size_t index) {
      const AssistantText text = TANDEM_TRY(split_assistant(message(index), index));
      writer.constant("<|im_start|>").client("assistant");
      const bool is_last = index + 1 == count();
      if (index > last_query && (is_last || !text.reasoning.empty())) {
        writer.constant("\n<think>\n").client(strip(text.reasoning, '\n'));
        writer.constant("\n</think>\n\n").client(lstrip(text.content, '\n'));
      } else {
        writer.constant("\n").client(text.content);
      }
      TANDEM_TRY(write_tool_calls(message(index), index, !text.content.empty(), writer));
      writer.constant("<|im_end|>\n");
      return {};
    }

    Result<void> write_tool_result(size_t index) {
      // Neighbouring results share one user turn.
      if (index == 0 || role_of(message(index - 1)) != "tool") writer.constant("<|im_start|>user");
      writer.constant("\n<tool_response>\n");
      if (message(index).contains("content")) {
        writer.client(TANDEM_TRY(text_member(message(index), "content", place(index))));
      }
      writer.constant("\n</tool_response>");
      const bool is_last = index + 1 == count();
      if (is_last || role_of(message(index + 1)) != "tool") writer.constant("<|im_end|>\n");
      return {};
    }

    void write_generation_prompt() {
      writer.constant("<|im_start|>assistant\n");
      const auto thinking = input.variables.find("enable_thinking");
      if (thinking != input.variables.end() && *thinking == false) {
        writer.constant("<think>\n\n</think>\n\n");
      }
    }
  };

  size_t output_bytes_max_;
};

}  // namespace

bool is_qwen3_template(std::string_view source) {
  std::string normal;
  normal.reserve(source.size());
  for (size_t index = 0; index < source.size(); ++index) {
    const bool is_crlf = source.substr(index).starts_with("\r\n");
    if (!is_crlf) normal += source[index];
  }
  // Jinja drops one line end at the end of a template.
  if (normal.ends_with('\n')) normal.pop_back();
  const XXH128_hash_t hash = XXH3_128bits(normal.data(), normal.size());
  return hash.high64 == 0x4457e3d12b367a86 && hash.low64 == 0x0283f874ff58d644;
}

std::unique_ptr<ChatTemplate> make_native_qwen3_template(size_t output_bytes_max) {
  return std::make_unique<NativeQwen3Template>(output_bytes_max);
}

}  // namespace tandem::text
