#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/splitter.h"

namespace tandem::text {

/// What a tokenizer.json says, checked: every id is in range, every token a merge names exists.
struct TokenizerDefinition {
  struct Token {
    TokenId id;
    std::string bytes;  ///< not empty
  };
  /// Its place in the list is its rank.
  struct Merge {
    TokenId left;
    TokenId right;
    TokenId merged;
  };
  struct AddedToken {
    TokenId id;
    std::string content;  ///< not empty, unique
    bool lstrip;
    bool rstrip;
    bool normalized;  ///< matched in normalised text, otherwise in the raw text
    bool special;
  };

  SplitRule split_rule = SplitRule::kQwen3;
  bool normalizes_nfc = false;
  std::vector<Token> tokens;
  std::array<TokenId, 256> byte_tokens{};  ///< the token of each single byte
  std::vector<Merge> merges;
  std::vector<AddedToken> added_tokens;
};

/// Reads the bytes of a tokenizer.json. Anything that would change ids and is not supported is
/// kUnimplemented; anything malformed is kInvalidArgument. Both name the JSON path.
///
/// `truncation`, `padding` and a ByteLevel post-processor are ignored: the first two are settings
/// of batch jobs and the third moves offsets only.
Result<TokenizerDefinition> parse_tokenizer_json(std::string_view json);

}  // namespace tandem::text
