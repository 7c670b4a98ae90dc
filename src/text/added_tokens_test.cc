// Goal: added tokens are split off leftmost and longest, with the white space they take.
// Method: hand-made patterns and texts; the parts always join to the text.
#include "text/added_tokens.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace tandem::text {
namespace {

using Parts = std::vector<std::pair<std::string, TokenId>>;
constexpr TokenId kText = AddedTokenMatcher::Part::kText;

Parts split(const AddedTokenMatcher& matcher, const std::string& text) {
  Parts parts;
  std::string joined;
  for (const AddedTokenMatcher::Part& part : matcher.split(text)) {
    parts.emplace_back(part.text, part.id);
    joined += part.text;
  }
  EXPECT_EQ(joined, text);
  return parts;
}

TEST(AddedTokens, LeftmostThenLongest) {
  const AddedTokenMatcher matcher({{"<a>", 1}, {"<a><b>", 2}, {"><", 3}, {"x", 4}});
  EXPECT_EQ(split(matcher, ""), (Parts{}));
  EXPECT_EQ(split(matcher, "text"), (Parts{{"te", kText}, {"x", 4}, {"t", kText}}));
  EXPECT_EQ(split(matcher, "<a><b>"), (Parts{{"<a><b>", 2}}));
  EXPECT_EQ(split(matcher, "<a><c>"), (Parts{{"<a>", 1}, {"<c>", kText}}));
  EXPECT_EQ(split(matcher, "<b><a>"), (Parts{{"<b", kText}, {"><", 3}, {"a>", kText}}));
  EXPECT_EQ(split(matcher, "<a"), (Parts{{"<a", kText}}));
}

TEST(AddedTokens, TakesTheWhiteSpaceItAsksFor) {
  const AddedTokenMatcher matcher({{.content = "<l>", .id = 1, .takes_space_before = true},
                                   {.content = "<r>", .id = 2, .takes_space_after = true}});
  EXPECT_EQ(split(matcher, "a \u3000<l> b"),
            (Parts{{"a", kText}, {" \u3000<l>", 1}, {" b", kText}}));
  EXPECT_EQ(split(matcher, "a <r>\n\u2003b"),
            (Parts{{"a ", kText}, {"<r>\n\u2003", 2}, {"b", kText}}));
  EXPECT_EQ(split(matcher, "<r>  <l>"), (Parts{{"<r>  ", 2}, {"<l>", 1}})) << "taken once";
  EXPECT_EQ(split(matcher, "  <l>"), (Parts{{"  <l>", 1}})) << "up to the start";
  EXPECT_EQ(split(matcher, "<r>  "), (Parts{{"<r>  ", 2}})) << "up to the end";
}

TEST(AddedTokens, WithoutPatternsEverythingIsText) {
  const AddedTokenMatcher matcher({});
  EXPECT_EQ(split(matcher, "<a>"), (Parts{{"<a>", kText}}));
}

TEST(AddedTokens, PatternsMayStartWithAnyByte) {
  const AddedTokenMatcher matcher({{"\u4E2D", 1}, {"\U0010FFFF", 2}});
  EXPECT_EQ(split(matcher, "\u4E2D\u4E2E\U0010FFFF"),
            (Parts{{"\u4E2D", 1}, {"\u4E2E", kText}, {"\U0010FFFF", 2}}));
}

}  // namespace
}  // namespace tandem::text
