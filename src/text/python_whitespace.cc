#include "text/python_whitespace.h"

#include <algorithm>
#include <array>

namespace tandem::text {
namespace {

constexpr std::string_view kSpaces[] = {
    "\t",           "\n",           "\v",           "\f",           "\r",
    "\x1c",         "\x1d",         "\x1e",         "\x1f",         " ",
    "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
    "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
    "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
    "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};

}  // namespace

std::string_view rstrip_whitespace(std::string_view text) {
  const auto ends_with = [&](std::string_view space) { return text.ends_with(space); };
  for (;;) {
    const auto* space = std::find_if(std::begin(kSpaces), std::end(kSpaces), ends_with);
    if (space == std::end(kSpaces)) return text;
    text.remove_suffix(space->size());
  }
}

std::string_view strip_whitespace(std::string_view text) {
  text = rstrip_whitespace(text);
  const auto starts_with = [&](std::string_view space) { return text.starts_with(space); };
  for (;;) {
    const auto* space = std::find_if(std::begin(kSpaces), std::end(kSpaces), starts_with);
    if (space == std::end(kSpaces)) return text;
    text.remove_prefix(space->size());
  }
}

std::string_view lstrip(std::string_view text, char c) {
  return text.substr(std::min(text.find_first_not_of(c), text.size()));
}

std::string_view rstrip(std::string_view text, char c) {
  return text.substr(0, text.find_last_not_of(c) + 1);
}

std::string_view strip(std::string_view text, char c) {
  return lstrip(rstrip(text, c), c);
}

}  // namespace tandem::text
