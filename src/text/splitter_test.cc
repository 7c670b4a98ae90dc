// Goal: pieces are those of the two regular expressions.
// Method: a table of texts with hand-derived pieces for every alternative and its edge; where the
// rules differ both columns are there. The parity check compares random texts.
#include "text/splitter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::text {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(SplitRule rule, std::string_view text) {
  Pieces pieces;
  while (!text.empty()) {
    const size_t bytes = first_piece_bytes(rule, text);
    pieces.emplace_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return pieces;
}

TEST(Splitter, BothRules) {
  const std::vector<std::pair<std::string, Pieces>> cases = {
      {"", {}},
      {"Hello world", {"Hello", " world"}},
      {"a  b", {"a", " ", " b"}},
      {"a   ", {"a", "   "}},
      {" ", {" "}},
      {" 1", {" ", "1"}},
      {"  1", {" ", " ", "1"}},
      {"123", {"1", "2", "3"}},
      {"I'll don't 'S 'x", {"I", "'ll", " don", "'t", " '", "S", " '", "x"}},
      {"'LL'Re'vE'M'd'l", {"'LL", "'Re", "'vE", "'M", "'d", "'l"}},
      {"'\u017Ft", {"'\u017F", "t"}},
      {"''s", {"''", "s"}},
      {"(x) (!)", {"(x", ")", " (!)"}},
      {"\tx\t\tx", {"\tx", "\t", "\tx"}},
      {"a;\r\n\n b", {"a", ";\r\n\n", " b"}},
      {"a \n \n  b", {"a", " \n \n", " ", " b"}},
      {"a \n \n  ", {"a", " \n \n", "  "}},
      {"\nx", {"\n", "x"}},
      {"\u00A0x\u3000\u3000!", {"\u00A0x", "\u3000", "\u3000", "!"}},
      {"\u4E2D\u6587\uFF0C\u5B57", {"\u4E2D\u6587", "\uFF0C\u5B57"}},
      {"\U0001F600\u200D\U0001F525 ok", {"\U0001F600\u200D\U0001F525", " ok"}},
      {"x\u00BD\u0663", {"x", "\u00BD", "\u0663"}},
  };
  for (const auto& [text, pieces] : cases) {
    EXPECT_EQ(split(SplitRule::kQwen3, text), pieces) << text;
    EXPECT_EQ(split(SplitRule::kQwen35, text), pieces) << text;
  }
}

TEST(Splitter, MarksAreWordsInOneRuleOnly) {
  struct Case {
    std::string text;
    Pieces qwen3;
    Pieces qwen35;
  };
  const std::vector<Case> cases = {
      // Devanagari: letters with vowel signs.
      {"\u0939\u093F\u0928", {"\u0939", "\u093F\u0928"}, {"\u0939\u093F\u0928"}},
      {" \u0301", {" \u0301"}, {" \u0301"}},
      {"\u0301\u0301a", {"\u0301\u0301", "a"}, {"\u0301\u0301a"}},
      {"!\u0301!", {"!\u0301!"}, {"!\u0301", "!"}},
      {"1\u0301\n", {"1", "\u0301\n"}, {"1", "\u0301", "\n"}},
      {"\u2764\uFE0F\u2764", {"\u2764\uFE0F\u2764"}, {"\u2764\uFE0F", "\u2764"}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(split(SplitRule::kQwen3, c.text), c.qwen3) << c.text;
    EXPECT_EQ(split(SplitRule::kQwen35, c.text), c.qwen35) << c.text;
  }
}

TEST(Splitter, KnowsExactlyTwoExpressions) {
  const std::string qwen3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  EXPECT_EQ(split_rule_of(qwen3), SplitRule::kQwen3);
  EXPECT_EQ(split_rule_of(qwen3 + " "), std::nullopt);
  EXPECT_EQ(split_rule_of(""), std::nullopt);
}

}  // namespace
}  // namespace tandem::text
