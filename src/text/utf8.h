#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::text {

constexpr char32_t kReplacementCharacter = 0xFFFD;

/// What stands at the start of a text.
struct Utf8Step {
  enum class Kind {
    kCharacter,   ///< One well-formed character.
    kInvalid,     ///< A maximal subpart of an ill-formed character: reads as one U+FFFD.
    kIncomplete,  ///< The text ends inside a character that is well-formed so far.
  };
  Kind kind;
  uint32_t bytes;       ///< How much of the text it takes, at least 1.
  char32_t code_point;  ///< U+FFFD unless kCharacter.
};

/// Reads one step. Overlong forms, surrogates and code points past U+10FFFF are ill-formed.
/// Requires a text that is not empty.
Utf8Step utf8_step(std::string_view text);

void append_utf8(char32_t code_point, std::string& text);

/// Offset of the first byte that is not part of a well-formed character; text.size() if none is.
size_t valid_utf8_prefix(std::string_view text);

/// The text with every maximal ill-formed subpart (an incomplete tail is one) read as U+FFFD.
std::string to_valid_utf8(std::string_view text);

/// The same for a stream: takes everything out of `pending` except an incomplete tail, which is
/// at most 3 bytes and may be completed by the bytes that are appended next.
std::string take_valid_utf8(std::string& pending);

}  // namespace tandem::text
