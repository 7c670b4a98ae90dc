#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace tandem::parity {

/// The held-out texts of tiny-moe and its tokenizer.
struct ValidationTexts {
  static Result<ValidationTexts> open();

  std::vector<TokenId> tokens_of(const std::string& text) const {
    return tokenizer->encode(text, text::ControlTokens::kRecognise);
  }

  std::vector<std::string> chat;   // whole transcripts
  std::vector<std::string> prose;  // passages
  std::unique_ptr<text::Tokenizer> tokenizer;
};

}  // namespace tandem::parity
