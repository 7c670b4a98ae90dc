#include "text/normalize.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "text/unicode.h"
#include "text/utf8.h"

namespace tandem::text {
namespace {

// Hangul syllables are composed by arithmetic (Unicode standard, section 3.12).
constexpr char32_t kSyllableBase = 0xAC00;
constexpr char32_t kLeadBase = 0x1100;
constexpr char32_t kVowelBase = 0x1161;
constexpr char32_t kTrailBase = 0x11A7;  // One below the first trail: index 0 means none.
constexpr char32_t kLeadCount = 19;
constexpr char32_t kVowelCount = 21;
constexpr char32_t kTrailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTrailCount;

struct Character {
  char32_t code_point;
  uint8_t combining_class;
};

void append_decomposed(char32_t code_point, std::vector<Character>& out) {
  const auto put = [&](char32_t c) { out.push_back({c, combining_class(c)}); };
  if (code_point - kSyllableBase < kSyllableCount) {
    const char32_t index = code_point - kSyllableBase;
    put(kLeadBase + index / (kVowelCount * kTrailCount));
    put(kVowelBase + index % (kVowelCount * kTrailCount) / kTrailCount);
    if (index % kTrailCount != 0) put(kTrailBase + index % kTrailCount);
    return;
  }
  const std::span<const char32_t> parts = decomposition(code_point);
  if (parts.empty()) put(code_point);
  for (const char32_t part : parts) put(part);
}

// Sorts each run of combining marks by class and keeps the order inside a class.
void order_marks(std::vector<Character>& characters) {
  const auto is_mark = [](const Character& c) { return c.combining_class != 0; };
  auto begin = characters.begin();
  while (true) {
    begin = std::find_if(begin, characters.end(), is_mark);
    if (begin == characters.end()) return;
    const auto end = std::find_if_not(begin, characters.end(), is_mark);
    std::ranges::stable_sort(begin, end, {}, &Character::combining_class);
    begin = end;
  }
}

char32_t compose(char32_t first, char32_t second) {
  if (first - kLeadBase < kLeadCount && second - kVowelBase < kVowelCount) {
    const char32_t lead = first - kLeadBase;
    return kSyllableBase + (lead * kVowelCount + (second - kVowelBase)) * kTrailCount;
  }
  const bool is_open_syllable =
      first - kSyllableBase < kSyllableCount && (first - kSyllableBase) % kTrailCount == 0;
  if (is_open_syllable && second - kTrailBase - 1 < kTrailCount - 1) {
    return first + (second - kTrailBase);
  }
  return composition(first, second);
}

// Joins each character with the last starter unless something between them blocks it: another
// character of the same or a higher class.
void compose_all(std::vector<Character>& characters) {
  constexpr size_t kNone = SIZE_MAX;
  size_t starter = kNone;
  size_t kept = 0;
  for (const Character character : characters) {
    if (starter != kNone) {
      const bool is_adjacent = kept == starter + 1;
      if (is_adjacent || characters[kept - 1].combining_class < character.combining_class) {
        const char32_t composite = compose(characters[starter].code_point, character.code_point);
        if (composite != 0) {
          characters[starter].code_point = composite;
          continue;
        }
      }
    }
    if (character.combining_class == 0) starter = kept;
    characters[kept++] = character;
  }
  characters.resize(kept);
}

void append_normalized(std::string_view run, std::vector<Character>& scratch, std::string& out) {
  scratch.clear();
  for (size_t offset = 0; offset < run.size();) {
    const Utf8Step step = utf8_step(run.substr(offset));
    append_decomposed(step.code_point, scratch);
    offset += step.bytes;
  }
  order_marks(scratch);
  compose_all(scratch);
  for (const Character character : scratch) append_utf8(character.code_point, out);
}

}  // namespace

std::string to_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::vector<Character> scratch;

  // A run is a stable character and the unstable ones after it. Runs without unstable characters
  // are copied together.
  size_t copied = 0;
  size_t run = 0;
  bool is_unstable = false;
  const auto end_run = [&](size_t end) {
    if (is_unstable) {
      out.append(text.substr(copied, run - copied));
      append_normalized(text.substr(run, end - run), scratch, out);
      copied = end;
    }
    is_unstable = false;
    run = end;
  };
  for (size_t offset = 0; offset < text.size();) {
    // Characters below U+0300, whose lead byte is below CC, are stable.
    const auto lead = static_cast<uint8_t>(text[offset]);
    if (lead < 0xCC) {
      end_run(offset);
      offset += lead < 0x80 ? 1 : 2;
      continue;
    }
    const Utf8Step step = utf8_step(text.substr(offset));
    if (is_nfc_unstable(step.code_point)) {
      is_unstable = true;
    } else {
      end_run(offset);
    }
    offset += step.bytes;
  }
  end_run(text.size());
  out.append(text.substr(copied));
  return out;
}

}  // namespace tandem::text
