#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem::text {

/// The bytes that a token stands for when it is spelled in GPT-2's alphabet, which has a visible
/// character for each of the 256 bytes; nothing if a character is not of the alphabet. Requires
/// valid UTF-8.
std::optional<std::string> bytes_of_spelling(std::string_view spelling);

}  // namespace tandem::text
