#pragma once

#include <cstdint>
#include <span>

namespace tandem::text {

/// What the split rules tell apart: \p{L}, \p{M}, \p{N}, \s and the rest.
enum class CharacterClass : uint8_t { kOther, kLetter, kMark, kNumber, kSpace };

CharacterClass character_class(char32_t code_point);

/// Canonical combining class; 0 for characters that are never reordered.
uint8_t combining_class(char32_t code_point);

/// False if NFC leaves the character alone and never moves or joins it with what stands before
/// it. A text can be cut before such a character and each part normalised on its own.
bool is_nfc_unstable(char32_t code_point);

/// The full canonical decomposition; empty if there is none or the character is Hangul.
std::span<const char32_t> decomposition(char32_t code_point);

/// The character that two combine into, Hangul aside; 0 if they do not.
char32_t composition(char32_t first, char32_t second);

}  // namespace tandem::text
