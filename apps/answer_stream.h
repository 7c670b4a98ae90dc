#pragma once

#include <string>

#include "engine/request.h"
#include "text/detokenizer.h"

namespace tandem::apps {

/// Writes the text of one answer to standard output as it comes, and remembers it.
class AnswerStream {
 public:
  explicit AnswerStream(const text::Tokenizer& tokenizer) : detokenizer_(tokenizer, {}) {}

  /// The token that ended the answer is not text.
  void push(const engine::Event& event);
  const std::string& text() const { return text_; }

 private:
  void show(const std::string& piece);

  text::Detokenizer detokenizer_;
  std::string text_;
};

}  // namespace tandem::apps
