// Goal: NFC of text of any shape, in time that a long run of marks does not blow up.
// Method: the shapes the standard names, then properties on random text: normalising twice changes
// nothing, and a cut before a stable character changes nothing. The parity check compares with the
// `tokenizers` library.
#include "text/normalize.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "text/unicode.h"
#include "text/utf8.h"

namespace tandem::text {
namespace {

TEST(Normalize, LeavesNormalTextAlone) {
  for (const char* text : {"", "plain ascii\n", "na\u00EFve caf\u00E9", "\u65E5\u672C\u8A9E",
                           "\uD55C\uAD6D\uC5B4", "\U0001F600\uFE0F\u200D"}) {
    EXPECT_EQ(to_nfc(text), text);
  }
}

TEST(Normalize, ComposesAndOrders) {
  EXPECT_EQ(to_nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(to_nfc("A\u0302\u0301"), "\u1EA4");
  EXPECT_EQ(to_nfc("A\u0301\u0302"), "\u00C1\u0302") << "two of one class keep their order";
  EXPECT_EQ(to_nfc("a\u0301\u0323"), "\u1EA1\u0301") << "the lower class comes first";
  EXPECT_EQ(to_nfc("\u212B"), "\u00C5") << "a singleton";
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093C") << "excluded from composition";
  EXPECT_EQ(to_nfc("\u0344"), "\u0308\u0301") << "starts with a mark";
  EXPECT_EQ(to_nfc("xe\u0301y e\u0301"), "x\u00E9y \u00E9") << "two runs in plain text";
}

TEST(Normalize, AMarkOfTheSameClassBlocks) {
  // U+0316 is of class 220, which lets U+0301 (230) pass; U+0305 (230) does not.
  EXPECT_EQ(to_nfc("e\u0316\u0301"), "\u00E9\u0316");
  EXPECT_EQ(to_nfc("e\u0305\u0301"), "e\u0305\u0301");
  // A vowel sign of class 0 joins its neighbour only.
  EXPECT_EQ(to_nfc("\u09C7\u09BE"), "\u09CB");
  EXPECT_EQ(to_nfc("\u09C7\u0323\u09BE"), "\u09C7\u0323\u09BE");
  EXPECT_EQ(to_nfc("a\u05B0\u0301"), "\u00E1\u05B0");
  // A starter between them blocks as well.
  EXPECT_EQ(to_nfc("e\u200D\u0301"), "e\u200D\u0301");
}

TEST(Normalize, Hangul) {
  EXPECT_EQ(to_nfc("\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(to_nfc("\uD558\u11AB"), "\uD55C") << "an open syllable takes a trail";
  EXPECT_EQ(to_nfc("\uD55C\u11AB"), "\uD55C\u11AB") << "a closed one does not";
  EXPECT_EQ(to_nfc("\u1112\u1161\u11A7"), "\uD558\u11A7") << "U+11A7 is no trail";
  EXPECT_EQ(to_nfc("\u1161\u11AB"), "\u1161\u11AB");
}

TEST(Normalize, IsIdempotentAndLocal) {
  const std::u32string alphabet =
      U"aeoA \u0301\u0302\u0323\u0345\u0308\u00E9\u1EA4\u1112\u1161\u11AB\uD558\u09C7\u09BE\u0958"
      U"\u212B\u0344\U0001D15F\u4E2D\u200D";
  std::mt19937 random(11);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> runs(1);
    for (size_t i = random() % 12; i > 0; --i) {
      const char32_t c = alphabet[random() % alphabet.size()];
      if (!is_nfc_unstable(c)) runs.emplace_back();
      append_utf8(c, runs.back());
    }
    std::string whole;
    std::string apart;
    for (const std::string& run : runs) {
      whole += run;
      apart += to_nfc(run);
    }
    ASSERT_EQ(to_nfc(whole), apart);
    ASSERT_EQ(to_nfc(apart), apart);
  }
}

TEST(Normalize, AMillionMarksAreSortedFast) {
  std::string text = "a";
  for (int i = 0; i < 500000; ++i) text += "\u0316\u0323";
  const std::string normalized = to_nfc(text);
  EXPECT_TRUE(normalized.starts_with("a\u0316\u0323"));
  EXPECT_EQ(normalized.size(), text.size());
  // The reverse order of classes is the hardest to sort.
  std::string reversed = "e";
  for (int i = 0; i < 500000; ++i) reversed += "\u0301\u0334";
  EXPECT_TRUE(to_nfc(reversed).starts_with("\u00E9\u0334"));
}

}  // namespace
}  // namespace tandem::text
