#pragma once

#include <string_view>

namespace tandem::text {

/// str.strip() and str.rstrip() of Python on valid UTF-8: every character that str.isspace() names.
std::string_view strip_whitespace(std::string_view text);
std::string_view rstrip_whitespace(std::string_view text);

/// str.strip(c), str.lstrip(c) and str.rstrip(c) of one ASCII character.
std::string_view strip(std::string_view text, char c);
std::string_view lstrip(std::string_view text, char c);
std::string_view rstrip(std::string_view text, char c);

}  // namespace tandem::text
