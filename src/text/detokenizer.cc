#include "text/detokenizer.h"

#include "text/utf8.h"

namespace tandem::text {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, Options options)
    : tokenizer_(tokenizer), options_(options) {}

std::string Detokenizer::push(TokenId token) {
  // A skipped token does not end a character: decode() leaves it out before it joins the bytes.
  if (options_.skip_special && tokenizer_.is_special(token)) return {};
  pending_ += tokenizer_.token_bytes(token);
  return take_valid_utf8(pending_);
}

std::string Detokenizer::finish() {
  std::string text = to_valid_utf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace tandem::text
