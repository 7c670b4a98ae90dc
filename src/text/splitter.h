#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace tandem::text {

/// How text is cut into the pieces that merges never cross.
enum class SplitRule {
  kQwen3,   ///< Qwen2, Qwen3, Qwen3-Next
  kQwen35,  ///< Qwen3.5 on: combining marks belong to words
};

/// The rule that a regular expression of a tokenizer.json spells; nothing for any other.
std::optional<SplitRule> split_rule_of(std::string_view regex);

/// Bytes of the piece at the start of the text, which ends where its segment ends. The pieces of
/// a text follow each other without gaps. Requires valid UTF-8 that is not empty.
size_t first_piece_bytes(SplitRule rule, std::string_view text);

}  // namespace tandem::text
