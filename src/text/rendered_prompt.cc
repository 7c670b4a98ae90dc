#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"

namespace tandem::text {
namespace {

/// Collects a prompt's tokens. Text between two control tokens is encoded in one piece even where
/// the template's words and the client's meet in it, because a merge may reach across: after
/// "user\n" a message that starts with a line end shares one token with it.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add_client(std::string_view text) { pending_ += text; }

  void add_template(std::string_view text) {
    size_t position = 0;
    for (const TokenId id : tokenizer_.encode(text, ControlTokens::kRecognise)) {
      if (!tokenizer_.is_added(id)) continue;
      // The tokenizer takes control tokens from left to right, so the next one it reports is the
      // next one of its spelling.
      const std::string_view spelling = tokenizer_.token_bytes(id);
      const size_t found = text.find(spelling, position);
      if (found == std::string_view::npos) continue;
      pending_ += text.substr(position, found - position);
      flush();
      tokens_.push_back(id);
      position = found + spelling.size();
    }
    pending_ += text.substr(position);
  }

  std::vector<TokenId> finish() {
    flush();
    return std::move(tokens_);
  }

 private:
  void flush() {
    if (pending_.empty()) return;
    const auto ids = tokenizer_.encode(pending_, ControlTokens::kPlainText);
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    pending_.clear();
  }

  const Tokenizer& tokenizer_;
  std::string pending_;
  std::vector<TokenId> tokens_;
};

}  // namespace

std::vector<TokenId> RenderedPrompt::encode(const Tokenizer& tokenizer) const {
  Encoder encoder(tokenizer);
  for (const Span& span : spans) {
    if (span.from_client) {
      encoder.add_client(span.text);
    } else {
      encoder.add_template(span.text);
    }
  }
  return encoder.finish();
}

}  // namespace tandem::text
