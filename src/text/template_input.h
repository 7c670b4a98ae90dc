#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/python_json.h"

namespace tandem::text {

/// A ChatInput after the steps that transformers takes before it runs a template, so that every
/// renderer sees the same values.
struct TemplateInput {
  Json messages;   ///< non-empty array of objects
  Json tools;      ///< array of objects, or null
  Json variables;  ///< object
  bool add_generation_prompt = true;
  /// The text of the last message as the client sent it, when it is to be continued. In
  /// `messages` it then ends with a marker that cut_continued() looks for.
  std::optional<std::string> continued_text;
};

/// Parses and prepares: members that are null are dropped from messages, `thinking` and
/// `reasoning` also become `reasoning_content`. One step is ours: an assistant message without
/// content gets "", because OpenAI's clients send null beside tool_calls and most templates fail
/// on it.
Result<TemplateInput> prepare_template_input(const ChatInput& input);

/// Ends the prompt behind the text that is to be continued. Does nothing when there is none.
Result<void> cut_continued(const TemplateInput& input, RenderedPrompt& prompt);

}  // namespace tandem::text
