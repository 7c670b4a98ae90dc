// Goal: streamed tokens come out as whole characters, as soon as they are final, and join to what
// decode() gives.
// Method: a tokenizer with one token per byte, by hand and with random tokens.
#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "text/test_tokenizer_json.h"
#include "text/utf8.h"

namespace tandem::text {
namespace {

constexpr TokenId kEnd = 261;   // special
constexpr TokenId kTool = 262;  // not special

class DetokenizerTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Tokenizer>> created = Tokenizer::create(small_tokenizer_json().dump());
    ASSERT_TRUE(created.ok()) << created.error().what;
    tokenizer_ = std::move(*created);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(DetokenizerTest, HoldsBackHalfACharacter) {
  Detokenizer detokenizer(*tokenizer_, {});
  EXPECT_EQ(detokenizer.push('a'), "a");
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.push(0x98), "");
  EXPECT_EQ(detokenizer.push(0x80), "\U0001F600");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST_F(DetokenizerTest, BadBytesNeverStall) {
  Detokenizer detokenizer(*tokenizer_, {});
  EXPECT_EQ(detokenizer.push(0xFF), "\uFFFD");
  EXPECT_EQ(detokenizer.push(0xE2), "");
  EXPECT_EQ(detokenizer.push(258), "\uFFFD the") << "a word ends the hope for the character";
  EXPECT_EQ(detokenizer.push(0xE2), "");
  EXPECT_EQ(detokenizer.push(0x82), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.finish(), "") << "finish empties the tail";
}

TEST_F(DetokenizerTest, SpecialTokensAreShownOnlyWhenAsked) {
  Detokenizer hiding(*tokenizer_, {.skip_special = true});
  EXPECT_EQ(hiding.push(kEnd), "");
  EXPECT_EQ(hiding.push(kTool), "<tool>");
  Detokenizer showing(*tokenizer_, {.skip_special = false});
  EXPECT_EQ(showing.push(kEnd), "<|end|>");
  EXPECT_EQ(showing.push(12345), "") << "an id without a token";
}

TEST_F(DetokenizerTest, AnyTokensStreamToWhatDecodeGives) {
  std::mt19937 random(9);
  for (int round = 0; round < 5000; ++round) {
    const bool skip_special = round % 2 == 0;
    Detokenizer detokenizer(*tokenizer_, {.skip_special = skip_special});
    std::vector<TokenId> ids;
    std::string text;
    for (size_t i = random() % 20; i > 0; --i) {
      // Bytes from 0x80 on, so that characters often come together by chance.
      ids.push_back(static_cast<TokenId>(0x80 + random() % (263 - 0x80)));
      const std::string piece = detokenizer.push(ids.back());
      ASSERT_EQ(valid_utf8_prefix(piece), piece.size());
      text += piece;
    }
    text += detokenizer.finish();
    ASSERT_EQ(text, tokenizer_->decode(ids, skip_special));
  }
}

}  // namespace
}  // namespace tandem::text
