#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/stop_matcher.h"

namespace tandem::server {

/// Turns the tokens of one choice into the text its client gets: whole characters, nothing of or
/// past a stop string.
class ChoiceText {
 public:
  struct Options {
    std::vector<std::string> stops;
    bool include_stop = false;  ///< keep a stop string or the text of a stop token
    bool skip_special = true;
    uint32_t tokens_min = 0;  ///< stop strings do not count in the text of the first so many
  };
  ChoiceText(const text::Tokenizer& tokenizer, Options options);

  struct Piece {
    std::string text;
    bool stopped = false;  ///< a stop string is complete; no further token counts
  };
  Piece push(TokenId token);
  /// The stop token that ended the choice.
  Piece push_stop_token(TokenId token);
  /// The end: what was held back.
  Piece finish();

  /// Characters of the choice so far, including held-back ones.
  size_t characters_count() const { return characters_count_; }

 private:
  Piece emit(std::string text);

  const bool include_stop_;
  const uint32_t tokens_min_;
  text::Detokenizer detokenizer_;
  text::StopMatcher matcher_;
  uint32_t tokens_count_ = 0;
  size_t characters_count_ = 0;
};

}  // namespace tandem::server
