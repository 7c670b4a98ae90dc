// Goal: a choice's text is exact for every mix of stop strings, stop tokens, split characters and
// min_tokens, whatever the token boundaries are.
// Method: every cut of a text into single-byte and multi-byte tokens of the real tokenizer; the
// expected text is found by searching the whole.
#include "server/choice_text.h"

#include <gtest/gtest.h>

#include "server/testing/server_fixture.h"

namespace tandem::server {
namespace {

using testing::TinyText;

std::vector<TokenId> tokens_of(const std::string& text) {
  return TinyText::get().tokenizer->encode(text, text::ControlTokens::kPlainText);
}

struct Outcome {
  std::string text;
  bool stopped = false;
};

Outcome run(const std::string& text, ChoiceText::Options options) {
  ChoiceText choice(*TinyText::get().tokenizer, std::move(options));
  Outcome outcome;
  for (const TokenId token : tokens_of(text)) {
    const ChoiceText::Piece piece = choice.push(token);
    outcome.text += piece.text;
    if (piece.stopped) return {.text = outcome.text, .stopped = true};
  }
  const ChoiceText::Piece tail = choice.finish();
  return {.text = outcome.text + tail.text, .stopped = tail.stopped};
}

TEST(ChoiceText, StopsAtEverySubstring) {
  const std::string text = "one two three, one two four";
  for (size_t begin = 0; begin < text.size(); ++begin) {
    for (size_t length = 1; begin + length <= text.size(); ++length) {
      const std::string stop = text.substr(begin, length);
      const size_t at = text.find(stop);
      const Outcome outcome = run(text, {.stops = {stop}});
      EXPECT_TRUE(outcome.stopped) << stop;
      EXPECT_EQ(outcome.text, text.substr(0, at)) << stop;
      EXPECT_EQ(run(text, {.stops = {stop}, .include_stop = true}).text,
                text.substr(0, at + length));
    }
  }
}

TEST(ChoiceText, GivesBackWhatOnlyLookedLikeAStop) {
  const Outcome outcome = run("one two", {.stops = {"two!", "zzz"}});
  EXPECT_FALSE(outcome.stopped);
  EXPECT_EQ(outcome.text, "one two");
}

TEST(ChoiceText, CountsCharactersAndNotBytes) {
  const std::string text = "\xEB\x98\xBB is \xC3\xA9";  // 6 characters in 9 bytes
  ChoiceText choice(*TinyText::get().tokenizer, {});
  for (const TokenId token : tokens_of(text)) choice.push(token);
  EXPECT_EQ(choice.characters_count(), 6u);
}

TEST(ChoiceText, AHalfCharacterAtTheEndBecomesOneReplacement) {
  ChoiceText choice(*TinyText::get().tokenizer, {});
  const auto tokens = tokens_of("\xF0\x9F\xA7\x9F");
  ASSERT_GT(tokens.size(), 1u) << "the character takes several tokens";
  EXPECT_EQ(choice.push(tokens.front()).text, "");
  EXPECT_EQ(choice.finish().text, "\xEF\xBF\xBD");
}

TEST(ChoiceText, HidesTheStopTokenUnlessItIsWanted) {
  const TokenId token = tokens_of("x").front();
  ChoiceText hidden(*TinyText::get().tokenizer, {});
  EXPECT_EQ(hidden.push_stop_token(token).text, "");
  ChoiceText shown(*TinyText::get().tokenizer, {.include_stop = true});
  EXPECT_EQ(shown.push_stop_token(token).text, "x");
  ChoiceText special(*TinyText::get().tokenizer, {.include_stop = true, .skip_special = false});
  EXPECT_EQ(special.push_stop_token(TinyText::get().end_of_turn).text, "<|im_end|>");
}

TEST(ChoiceText, StopStringsDoNotCountWhileTokensAreRequired) {
  const auto count = static_cast<uint32_t>(tokens_of("one two").size());
  const Outcome outcome = run("one two three two", {.stops = {"two"}, .tokens_min = count});
  EXPECT_EQ(outcome.text, "one two three ");
}

}  // namespace
}  // namespace tandem::server
