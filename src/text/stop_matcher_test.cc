// Goal: a stream stops at the first stop string, emits nothing of or past it, and holds back no
// more than it must, however the text is cut.
// Method: hand-made cases, then random texts over two letters against a plain search of the whole
// text, pushed in random chunks.
#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace tandem::text {
namespace {

TEST(StopMatcher, HoldsBackWhatMayBecomeAStop) {
  StopMatcher matcher({"</end>"}, {});
  EXPECT_EQ(matcher.push("a<").text, "a");
  EXPECT_EQ(matcher.push("/e").text, "");
  EXPECT_EQ(matcher.push("x").text, "</ex");
  EXPECT_EQ(matcher.push("b</en").text, "b");
  const StopMatcher::Match match = matcher.push("d>tail");
  EXPECT_TRUE(match.stopped);
  EXPECT_EQ(match.text, "");
  EXPECT_EQ(matcher.push("more").text, "");
  EXPECT_FALSE(matcher.push("</end>").stopped);
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, FinishReturnsTheHeldText) {
  StopMatcher matcher({"stop"}, {});
  EXPECT_EQ(matcher.push("one sto").text, "one ");
  EXPECT_EQ(matcher.finish(), "sto");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, IncludesTheStopWhenAsked) {
  StopMatcher matcher({"\n\n"}, {.include_stop = true});
  EXPECT_EQ(matcher.push("a\n").text, "a");
  const StopMatcher::Match match = matcher.push("\nb");
  EXPECT_TRUE(match.stopped);
  EXPECT_EQ(match.text, "\n\n");
}

TEST(StopMatcher, TheStopThatEndsFirstWinsAndTiesGoToTheLongest) {
  StopMatcher first({"abcd", "bc"}, {});
  StopMatcher::Match match = first.push("xabcd");
  EXPECT_EQ(match.stop_index, 1u);
  EXPECT_EQ(match.text, "xa");

  StopMatcher longest({"c", "abc", "abc"}, {});
  match = longest.push("xabc");
  EXPECT_EQ(match.stop_index, 1u);
  EXPECT_EQ(match.text, "x");
}

TEST(StopMatcher, WithoutStopsEverythingPasses) {
  StopMatcher none({}, {});
  EXPECT_EQ(none.push("text").text, "text");
  StopMatcher empty({""}, {});
  EXPECT_EQ(empty.push("text").text, "text");
  EXPECT_FALSE(empty.push("text").stopped);
}

TEST(StopMatcher, KeepsCharactersWhole) {
  StopMatcher matcher({"\xF0\x9F\x98\x80!"}, {});
  // U+1F601 shares three bytes with the stop's U+1F600.
  EXPECT_EQ(matcher.push("\xF0\x9F\x98\x81").text, "\xF0\x9F\x98\x81");
  EXPECT_EQ(matcher.push("\xF0\x9F\x98\x80").text, "");
  EXPECT_EQ(matcher.push("?").text, "\xF0\x9F\x98\x80?");
}

struct Expected {
  std::string text;
  bool stopped = false;
  size_t stop_index = 0;
};

Expected search(const std::vector<std::string>& stops, const std::string& text, bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    const std::string head = text.substr(0, end);
    size_t longest = 0;
    Expected expected;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (!stops[i].empty() && head.ends_with(stops[i]) && stops[i].size() > longest) {
        longest = stops[i].size();
        expected = {include ? head : head.substr(0, end - longest), true, i};
      }
    }
    if (expected.stopped) return expected;
  }
  return {text};
}

TEST(StopMatcher, AgreesWithAPlainSearchInAnyChunking) {
  std::mt19937 random(7);
  const auto letters = [&](size_t length_max) {
    std::string text;
    for (size_t i = random() % (length_max + 1); i > 0; --i) text += "ab"[random() % 2];
    return text;
  };
  int stopped_count = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = random() % 4; i > 0; --i) stops.push_back(letters(7));
    const std::string text = letters(30);
    const bool include = random() % 2 == 0;
    const Expected expected = search(stops, text, include);

    StopMatcher matcher(stops, {.include_stop = include});
    std::string emitted;
    bool stopped = false;
    for (size_t offset = 0; offset < text.size();) {
      const size_t chunk = random() % 4;
      const StopMatcher::Match match = matcher.push(text.substr(offset, chunk));
      emitted += match.text;
      if (match.stopped) {
        ASSERT_FALSE(stopped);
        stopped = true;
        ASSERT_EQ(match.stop_index, expected.stop_index);
      }
      // Nothing may be emitted that is not part of the answer.
      ASSERT_TRUE(expected.text.starts_with(emitted)) << text;
      offset += chunk;
    }
    emitted += matcher.finish();
    ASSERT_EQ(stopped, expected.stopped) << text;
    ASSERT_EQ(emitted, expected.text) << text;
    stopped_count += stopped;
  }
  // The test is idle unless both outcomes are common.
  EXPECT_GT(stopped_count, 5000);
  EXPECT_LT(stopped_count, 19000);
}

TEST(StopMatcher, LongPeriodicStopsStayLinear) {
  // A search that restarts on a mismatch would need 10^10 steps here.
  StopMatcher matcher({std::string(100000, 'a') + "b"}, {});
  size_t emitted = 0;
  for (int i = 0; i < 1000000; ++i) emitted += matcher.push("a").text.size();
  EXPECT_EQ(emitted, 900000u);
  EXPECT_TRUE(matcher.push("b").stopped);
}

TEST(StopMatcher, HeldTextOfOneStopFeedsAnother) {
  StopMatcher matcher({"abab", "bb"}, {});
  EXPECT_EQ(matcher.push("xaba").text, "x");
  EXPECT_EQ(matcher.push("c").text, "abac");
  EXPECT_EQ(matcher.push("ab").text, "");
  EXPECT_EQ(matcher.push("b").text, "a") << "bb ends here and takes the held b";
  EXPECT_EQ(matcher.finish(), "");
}

}  // namespace
}  // namespace tandem::text
