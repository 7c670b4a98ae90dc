// Goal: bytes become valid UTF-8 the way the Unicode standard recommends (one U+FFFD per maximal
// subpart), at once and in any chunking.
// Method: the examples of the standard's chapter 3.9, every code point there and back, and random
// bytes cut at random places.
#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace tandem::text {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

std::string replacements(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += kReplacement;
  return text;
}

TEST(Utf8, EveryScalarValueSurvives) {
  for (uint32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
    std::string text;
    append_utf8(static_cast<char32_t>(code_point), text);
    const Utf8Step step = utf8_step(text);
    ASSERT_EQ(step.kind, Utf8Step::Kind::kCharacter) << code_point;
    ASSERT_EQ(step.bytes, text.size()) << code_point;
    ASSERT_EQ(static_cast<uint32_t>(step.code_point), code_point);
  }
}

TEST(Utf8, OneReplacementPerMaximalSubpart) {
  // Table 3-8 to 3-11 of the standard.
  EXPECT_EQ(to_valid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
                          "A"),
            replacements(8) + "A");
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
                          "A"),
            replacements(8) + "A");
  EXPECT_EQ(to_valid_utf8("\xF4\x91\x92\x93\xFF"
                          "A\x80\xBF"
                          "B"),
            replacements(5) + "A" + replacements(2) + "B");
  EXPECT_EQ(to_valid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                          "A"),
            replacements(4) + "A");
  EXPECT_EQ(to_valid_utf8("ab\xF0\x9F\x98"), "ab" + replacements(1)) << "incomplete tail";
}

TEST(Utf8, ValidPrefixStopsAtTheFirstBadByte) {
  EXPECT_EQ(valid_utf8_prefix(""), 0u);
  EXPECT_EQ(valid_utf8_prefix("a\xC3\xA9"), 3u);
  EXPECT_EQ(valid_utf8_prefix("a\xC3\xA9\xC3"), 3u);
  EXPECT_EQ(valid_utf8_prefix("a\xFF"
                              "b"),
            1u);
}

TEST(Utf8, AStreamHoldsBackAtMostThreeBytes) {
  std::string pending = "a\xF0\x9F\x98";
  EXPECT_EQ(take_valid_utf8(pending), "a");
  EXPECT_EQ(pending, "\xF0\x9F\x98");
  pending += "\x80";
  EXPECT_EQ(take_valid_utf8(pending), "\xF0\x9F\x98\x80");
  EXPECT_EQ(pending, "");
}

TEST(Utf8, ChunkingDoesNotChangeTheText) {
  std::mt19937 random(20240817);
  // Mostly lead and continuation bytes, so that near misses of characters are common.
  const std::string alphabet = "aZ\x80\x8F\x90\x9F\xA0\xBF\xC1\xC3\xE0\xE2\xED\xEF\xF0\xF1\xF4\xF5";
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    for (size_t i = random() % 24; i > 0; --i) bytes += alphabet[random() % alphabet.size()];
    std::string pending;
    std::string streamed;
    for (size_t offset = 0; offset < bytes.size();) {
      const size_t chunk = 1 + random() % 4;
      pending += bytes.substr(offset, chunk);
      streamed += take_valid_utf8(pending);
      ASSERT_LE(pending.size(), 3u);
      offset += chunk;
    }
    streamed += to_valid_utf8(pending);
    ASSERT_EQ(streamed, to_valid_utf8(bytes));
    ASSERT_EQ(valid_utf8_prefix(streamed), streamed.size());
  }
}

}  // namespace
}  // namespace tandem::text
