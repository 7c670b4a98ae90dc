// Goal: the lookups find the first and last element of a range, and nothing between ranges; the
// tables follow the Unicode versions of the `tokenizers` library.
// Method: known characters, and counts that the generator's probes gave. The parity check covers
// every code point.
#include "text/unicode.h"

#include <gtest/gtest.h>

namespace tandem::text {
namespace {

using enum CharacterClass;

TEST(Unicode, ClassesOfKnownCharacters) {
  EXPECT_EQ(character_class(U'a'), kLetter);
  EXPECT_EQ(character_class(U'0'), kNumber);
  EXPECT_EQ(character_class(U'_'), kOther);
  EXPECT_EQ(character_class(U'\u00BD'), kNumber);
  EXPECT_EQ(character_class(U'\u0301'), kMark);
  EXPECT_EQ(character_class(U'\u4E2D'), kLetter);
  EXPECT_EQ(character_class(U'\u9FFF'), kLetter);
  EXPECT_EQ(character_class(U'\uA015'), kLetter);
  EXPECT_EQ(character_class(U'\uFE0F'), kMark);
  EXPECT_EQ(character_class(U'\u200D'), kOther);
  EXPECT_EQ(character_class(U'\U0001F600'), kOther);
  EXPECT_EQ(character_class(U'\U0010FFFF'), kOther);
}

TEST(Unicode, WhiteSpaceIsTheTwentyFiveCharacters) {
  int count = 0;
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) count += character_class(c) == kSpace;
  EXPECT_EQ(count, 25);
  EXPECT_EQ(character_class(U'\u0085'), kSpace);
  EXPECT_EQ(character_class(U'\u200A'), kSpace);
  EXPECT_EQ(character_class(U'\u200B'), kOther);
  EXPECT_EQ(character_class(U'\u180E'), kOther);
}

TEST(Unicode, ThePlainAsciiTableAgreesWithTheRanges) {
  // ASCII has a table of its own; these counts are those of the standard.
  int letters = 0;
  int numbers = 0;
  int spaces = 0;
  for (uint32_t c = 0; c < 0x80; ++c) {
    letters += character_class(c) == kLetter;
    numbers += character_class(c) == kNumber;
    spaces += character_class(c) == kSpace;
  }
  EXPECT_EQ(letters, 52);
  EXPECT_EQ(numbers, 10);
  EXPECT_EQ(spaces, 6);
}

TEST(Unicode, CombiningClasses) {
  EXPECT_EQ(combining_class(U'a'), 0);
  EXPECT_EQ(combining_class(U'\u0301'), 230);
  EXPECT_EQ(combining_class(U'\u0323'), 220);
  EXPECT_EQ(combining_class(U'\u0345'), 240);
  EXPECT_EQ(combining_class(U'\u0334'), 1);
  // Unicode 12 gave it a class; the library's NFC is older.
  EXPECT_EQ(combining_class(U'\u0EBA'), 0);
}

TEST(Unicode, DecompositionsAndCompositions) {
  EXPECT_EQ(decomposition(U'a').size(), 0u);
  ASSERT_EQ(decomposition(U'\u1EA4').size(), 3u);
  EXPECT_TRUE(decomposition(U'\u1EA4')[0] == U'A');
  EXPECT_TRUE(composition(U'A', U'\u030A') == U'\u00C5');
  EXPECT_TRUE(composition(U'\u00C2', U'\u0301') == U'\u1EA4');
  EXPECT_TRUE(composition(U'A', U'B') == 0);
  EXPECT_TRUE(composition(U'\u0915', U'\u093C') == 0) << "excluded from composition";
}

}  // namespace
}  // namespace tandem::text
