#include "server/choice_text.h"

#include <algorithm>
#include <utility>

namespace tandem::server {

ChoiceText::ChoiceText(const text::Tokenizer& tokenizer, Options options)
    : include_stop_(options.include_stop),
      tokens_min_(options.tokens_min),
      detokenizer_(tokenizer, {.skip_special = options.skip_special}),
      matcher_(std::move(options.stops), {.include_stop = options.include_stop}) {}

ChoiceText::Piece ChoiceText::push(TokenId token) {
  ++tokens_count_;
  return emit(detokenizer_.push(token));
}

ChoiceText::Piece ChoiceText::push_stop_token(TokenId token) {
  return include_stop_ ? push(token) : Piece{};
}

ChoiceText::Piece ChoiceText::finish() {
  Piece piece = emit(detokenizer_.finish());
  piece.text += matcher_.finish();
  return piece;
}

ChoiceText::Piece ChoiceText::emit(std::string text) {
  characters_count_ += static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
  if (tokens_count_ <= tokens_min_) return {.text = std::move(text)};
  text::StopMatcher::Match match = matcher_.push(text);
  return {.text = std::move(match.text), .stopped = match.stopped};
}

}  // namespace tandem::server
