#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace tandem::text {

/// Whether spellings of added tokens ("<|im_end|>") in a text become those tokens.
enum class ControlTokens {
  kPlainText,  ///< User text: it stays text, whatever it spells.
  kRecognise,  ///< Template output and raw prompts: added tokens are split off first.
};

/// Byte-level BPE of a Hugging Face tokenizer.json with one of the two Qwen split rules.
/// Immutable after create(); every method may be called from any thread.
class Tokenizer {
 public:
  /// Parses the bytes of a tokenizer.json. Errors name the JSON path and what is supported.
  static Result<std::unique_ptr<Tokenizer>> create(std::string_view tokenizer_json);
  ~Tokenizer();

  /// Text to ids. Invalid UTF-8 is read as U+FFFD per maximal subpart.
  std::vector<TokenId> encode(std::string_view text, ControlTokens control) const;

  /// The bytes of one token as they appear in text (may be part of a character). Empty for ids
  /// that have no token.
  std::string_view token_bytes(TokenId id) const;
  /// True for ids that exist in the file.
  bool contains(TokenId id) const;
  /// An added token marked special: skipped when text is shown to a user.
  bool is_special(TokenId id) const;
  /// An added token (special or not).
  bool is_added(TokenId id) const;
  /// Id of an added token by its exact content.
  std::optional<TokenId> added_token(std::string_view content) const;
  /// One past the largest id in the file.
  TokenId vocabulary_size() const;

  /// Ids to text at once; the same bytes a Detokenizer streams.
  std::string decode(std::span<const TokenId> ids, bool skip_special) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::text
