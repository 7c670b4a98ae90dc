#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace tandem::text {
namespace {

bool is_space_at(std::string_view text, size_t offset) {
  const char32_t code_point = utf8_step(text.substr(offset)).code_point;
  return character_class(code_point) == CharacterClass::kSpace;
}

// Start of the white space that ends at `end`, not before `begin`.
size_t space_begin(std::string_view text, size_t begin, size_t end) {
  while (end > begin) {
    size_t previous = end - 1;
    while ((static_cast<uint8_t>(text[previous]) & 0xC0) == 0x80) --previous;
    if (previous < begin || !is_space_at(text, previous)) break;
    end = previous;
  }
  return end;
}

size_t space_end(std::string_view text, size_t begin) {
  while (begin < text.size() && is_space_at(text, begin)) {
    begin += utf8_step(text.substr(begin)).bytes;
  }
  return begin;
}

uint8_t first_byte(const AddedTokenMatcher::Pattern& pattern) {
  return static_cast<uint8_t>(pattern.content[0]);
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<Pattern> patterns)
    : patterns_(std::move(patterns)) {
  for (const Pattern& pattern : patterns_) TANDEM_CHECK(!pattern.content.empty());
  std::ranges::stable_sort(patterns_, [](const Pattern& a, const Pattern& b) {
    if (first_byte(a) != first_byte(b)) return first_byte(a) < first_byte(b);
    return a.content.size() > b.content.size();
  });
  for (uint32_t byte = 0; byte < group_begin_.size(); ++byte) {
    const auto begin = std::ranges::lower_bound(patterns_, byte, {}, first_byte);
    group_begin_[byte] = static_cast<uint32_t>(begin - patterns_.begin());
  }
}

const AddedTokenMatcher::Pattern* AddedTokenMatcher::match_at(std::string_view text,
                                                              size_t offset) const {
  const auto byte = static_cast<uint8_t>(text[offset]);
  for (uint32_t i = group_begin_[byte]; i < group_begin_[byte + 1]; ++i) {
    if (text.substr(offset).starts_with(patterns_[i].content)) return &patterns_[i];
  }
  return nullptr;
}

std::vector<AddedTokenMatcher::Part> AddedTokenMatcher::split(std::string_view text) const {
  std::vector<Part> parts;
  size_t text_begin = 0;
  size_t offset = 0;
  while (offset < text.size()) {
    const Pattern* pattern = match_at(text, offset);
    if (pattern == nullptr) {
      ++offset;
      continue;
    }
    size_t begin = offset;
    size_t end = offset + pattern->content.size();
    if (pattern->takes_space_before) begin = space_begin(text, text_begin, begin);
    if (pattern->takes_space_after) end = space_end(text, end);
    if (begin > text_begin) parts.push_back({text.substr(text_begin, begin - text_begin)});
    parts.push_back({text.substr(begin, end - begin), pattern->id});
    text_begin = end;
    offset = end;
  }
  if (text_begin < text.size()) parts.push_back({text.substr(text_begin)});
  return parts;
}

}  // namespace tandem::text
