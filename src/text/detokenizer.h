#pragma once

#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace tandem::text {

/// Turns a stream of tokens into a stream of valid UTF-8 of one choice. Never emits part of a
/// character: an incomplete tail (at most 3 bytes) waits for the next token. Bytes that can no
/// longer become a character come out as U+FFFD per maximal subpart, so nothing ever stalls.
/// Owned by one request; not thread-safe.
class Detokenizer {
 public:
  struct Options {
    bool skip_special = true;
  };
  Detokenizer(const Tokenizer& tokenizer, Options options);

  /// Adds a token; returns the text that became final with it (often empty or one word).
  std::string push(TokenId token);
  /// Ends the stream: the held-back tail as U+FFFD, or nothing.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  Options options_;
  std::string pending_;  // an incomplete character
};

}  // namespace tandem::text
