#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/tokenizer.h"

namespace tandem::text {

/// What a template gets, as JSON text: the client's `messages` array, `tools` array ("" for none),
/// and further variables (an object: enable_thinking, ...; "" for none).
struct ChatInput {
  std::string messages_json;
  std::string tools_json;
  std::string variables_json;
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

/// Names that `variables_json` may not hold, because a chat sets these itself.
inline constexpr std::string_view kOwnVariables[] = {"messages", "tools", "add_generation_prompt"};

/// A rendered prompt that remembers which bytes the template wrote and which came from the
/// client, so that user text that spells "<|im_end|>" stays text.
struct RenderedPrompt {
  struct Span {
    std::string text;
    bool from_client;
  };
  std::vector<Span> spans;

  std::string text() const;
  /// Encodes template text with control tokens and client text without.
  std::vector<TokenId> encode(const Tokenizer& tokenizer) const;
};

/// Renders a checkpoint's chat template. Thread-safe; render() may wait for a helper process.
class ChatTemplate {
 public:
  struct Options {
    std::string source;               ///< the Jinja template
    std::string special_tokens_json;  ///< bos_token, eos_token, ... as an object
    int processes_count = 1;          ///< Jinja helpers
    int deadline_ms = 5000;           ///< per render
    size_t output_bytes_max = 8u << 20;
  };
  /// Recognised Qwen templates are rendered natively; any other by Jinja2 in helper processes.
  static Result<std::unique_ptr<ChatTemplate>> create(Options options);
  virtual ~ChatTemplate() = default;

  /// kInvalidArgument carries the template's own raise_exception message.
  virtual Result<RenderedPrompt> render(const ChatInput& input) = 0;
};

}  // namespace tandem::text
