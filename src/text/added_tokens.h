#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace tandem::text {

/// Splits spellings of added tokens off a text. Immutable after construction.
class AddedTokenMatcher {
 public:
  struct Pattern {
    std::string content;  ///< not empty
    TokenId id;
    bool takes_space_before = false;  ///< lstrip: white space before the token is part of it
    bool takes_space_after = false;   ///< rstrip
  };
  /// A part of the text: a token, or the text between two.
  struct Part {
    static constexpr TokenId kText = -1;
    std::string_view text;
    TokenId id = kText;
  };
  explicit AddedTokenMatcher(std::vector<Pattern> patterns);

  /// The parts of a text in order, none empty: the leftmost match first, and of several that
  /// start together the longest. Requires valid UTF-8. The parts view the text.
  std::vector<Part> split(std::string_view text) const;

 private:
  const Pattern* match_at(std::string_view text, size_t offset) const;

  // Grouped by first byte, in a group the longest first.
  std::vector<Pattern> patterns_;
  // patterns_ that start with byte b: from group_begin_[b] to group_begin_[b + 1].
  std::array<uint32_t, 257> group_begin_;
};

}  // namespace tandem::text
