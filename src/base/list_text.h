#pragma once

#include <ranges>
#include <string>
#include <string_view>

namespace tandem {

/// "a, b, c" of a range of strings, for messages; nothing of an empty one. As fmt::join does, in
/// whose strings of fmt 9 g++ 12 sees an overflow that is not there.
template <std::ranges::input_range Range>
std::string list_text(const Range& items) {
  std::string text;
  std::string_view separator;
  for (const auto& item : items) {
    text += separator;
    text += item;
    separator = ", ";
  }
  return text;
}

}  // namespace tandem
