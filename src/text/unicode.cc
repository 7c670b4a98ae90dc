#include "text/unicode.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "text/unicode_tables.h"

namespace tandem::text {
namespace {

using namespace unicode_tables;

// The range that holds a code point, or nullptr.
template <typename Range>
const Range* find_range(std::span<const Range> ranges, char32_t code_point) {
  const auto after = std::ranges::upper_bound(ranges, code_point, {}, &Range::first);
  if (after == ranges.begin()) return nullptr;
  const Range& range = *(after - 1);
  return code_point <= range.last ? &range : nullptr;
}

// Most text is ASCII and should not pay for a search.
constexpr std::array<CharacterClass, 128> kAsciiClasses = [] {
  std::array<CharacterClass, 128> classes{};
  for (int c = '\t'; c <= '\r'; ++c) classes[c] = CharacterClass::kSpace;
  classes[' '] = CharacterClass::kSpace;
  for (int c = '0'; c <= '9'; ++c) classes[c] = CharacterClass::kNumber;
  for (int c = 'A'; c <= 'Z'; ++c) classes[c] = CharacterClass::kLetter;
  for (int c = 'a'; c <= 'z'; ++c) classes[c] = CharacterClass::kLetter;
  return classes;
}();

}  // namespace

CharacterClass character_class(char32_t code_point) {
  if (code_point < kAsciiClasses.size()) return kAsciiClasses[code_point];
  const ClassRange* range = find_range(kClassRanges, code_point);
  return range == nullptr ? CharacterClass::kOther : range->character_class;
}

uint8_t combining_class(char32_t code_point) {
  const CombiningRange* range = find_range(kCombiningRanges, code_point);
  return range == nullptr ? 0 : range->combining_class;
}

bool is_nfc_unstable(char32_t code_point) {
  return find_range(kUnstableRanges, code_point) != nullptr;
}

std::span<const char32_t> decomposition(char32_t code_point) {
  const auto found =
      std::ranges::lower_bound(kDecompositions, code_point, {}, &Decomposition::code_point);
  if (found == kDecompositions.end() || found->code_point != code_point) return {};
  return kDecompositionPool.subspan(found->offset, found->length);
}

char32_t composition(char32_t first, char32_t second) {
  const auto key = [](const Composition& entry) { return std::tuple(entry.first, entry.second); };
  const auto found = std::ranges::lower_bound(kCompositions, std::tuple(first, second), {}, key);
  if (found == kCompositions.end() || key(*found) != std::tuple(first, second)) return 0;
  return found->composite;
}

}  // namespace tandem::text
