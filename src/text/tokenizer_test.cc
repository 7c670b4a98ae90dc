// Goal: the front door: text to ids and back, control tokens only where asked, any bytes accepted.
// Method: a small tokenizer whose ids can be derived by hand, then the tokenizer of tiny-moe for
// sizes and round trips. tokenizer_parity_test.cc compares with the reference library.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "text/normalize.h"
#include "text/test_tokenizer_json.h"
#include "text/utf8.h"

namespace tandem::text {
namespace {

using Ids = std::vector<TokenId>;

std::unique_ptr<Tokenizer> create(const std::string& json) {
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::create(json);
  if (!tokenizer.ok()) {
    ADD_FAILURE() << tokenizer.error().what;
    return nullptr;
  }
  return std::move(*tokenizer);
}

std::unique_ptr<Tokenizer> small() {
  return create(small_tokenizer_json().dump());
}

std::unique_ptr<Tokenizer> tiny_moe() {
  std::ifstream file("models/tiny-moe/tokenizer.json", std::ios::binary);
  return create({std::istreambuf_iterator<char>(file), {}});
}

TEST(Tokenizer, MergesInsidePieces) {
  const auto tokenizer = small();
  const auto encode = [&](const char* text) {
    return tokenizer->encode(text, ControlTokens::kRecognise);
  };
  EXPECT_EQ(encode(""), Ids{});
  EXPECT_EQ(encode(" the"), Ids{258});
  EXPECT_EQ(encode("the"), (Ids{'t', 257}));
  EXPECT_EQ(encode("aaaaaa"), (Ids{260, 259}));
  EXPECT_EQ(encode("a a"), (Ids{'a', ' ', 'a'}));
  EXPECT_EQ(encode("e\u0301"), (Ids{0xC3, 0xA9})) << "NFC";
}

TEST(Tokenizer, ControlTokensOnlyWhereAsked) {
  const auto tokenizer = small();
  EXPECT_EQ(tokenizer->encode("a<|end|><tool>", ControlTokens::kRecognise), (Ids{'a', 261, 262}));
  const Ids plain = tokenizer->encode("<|end|>", ControlTokens::kPlainText);
  EXPECT_EQ(plain, (Ids{'<', '|', 'e', 'n', 'd', '|', '>'}));
  EXPECT_EQ(tokenizer->decode(plain, true), "<|end|>") << "text survives as text";
}

TEST(Tokenizer, InvalidBytesReadAsReplacementCharacters) {
  const auto tokenizer = small();
  for (const ControlTokens control : {ControlTokens::kRecognise, ControlTokens::kPlainText}) {
    const Ids ids = tokenizer->encode("a\xE2\x82z\xFF", control);
    EXPECT_EQ(tokenizer->decode(ids, false), "a\uFFFDz\uFFFD");
  }
}

TEST(Tokenizer, AnswersAboutTokens) {
  const auto tokenizer = small();
  EXPECT_EQ(tokenizer->vocabulary_size(), 263);
  EXPECT_EQ(tokenizer->token_bytes(258), " the");
  EXPECT_EQ(tokenizer->token_bytes(0xFF), "\xFF");
  EXPECT_EQ(tokenizer->token_bytes(0), std::string_view("\0", 1));
  EXPECT_EQ(tokenizer->token_bytes(261), "<|end|>");
  EXPECT_TRUE(tokenizer->is_special(261));
  EXPECT_TRUE(tokenizer->is_added(262));
  EXPECT_FALSE(tokenizer->is_special(262));
  EXPECT_FALSE(tokenizer->is_added(258));
  EXPECT_EQ(tokenizer->added_token("<tool>"), 262);
  EXPECT_EQ(tokenizer->added_token("tool"), std::nullopt);
  for (const TokenId id : {TokenId{-1}, TokenId{263}, INT32_MAX, INT32_MIN}) {
    EXPECT_FALSE(tokenizer->contains(id));
    EXPECT_FALSE(tokenizer->is_special(id));
    EXPECT_EQ(tokenizer->token_bytes(id), "");
  }
  EXPECT_EQ(tokenizer->decode(Ids{-1, 'a', 999}, false), "a") << "unknown ids are no text";
}

TEST(Tokenizer, IdsMayHaveGaps) {
  nlohmann::json json = small_tokenizer_json();
  json["added_tokens"][1]["id"] = 1000;
  const auto tokenizer = create(json.dump());
  EXPECT_EQ(tokenizer->vocabulary_size(), 1001);
  EXPECT_FALSE(tokenizer->contains(500));
  EXPECT_TRUE(tokenizer->contains(1000));
}

TEST(Tokenizer, DecodeSkipsSpecialTokensOnly) {
  const auto tokenizer = small();
  const Ids ids = {'a', 261, 262, 258};
  EXPECT_EQ(tokenizer->decode(ids, true), "a<tool> the");
  EXPECT_EQ(tokenizer->decode(ids, false), "a<|end|><tool> the");
  // The halves of a character meet when a special token between them is skipped.
  EXPECT_EQ(tokenizer->decode(Ids{0xC3, 261, 0xA9}, true), "\u00E9");
  EXPECT_EQ(tokenizer->decode(Ids{0xC3, 261, 0xA9}, false), "\uFFFD<|end|>\uFFFD");
}

TEST(Tokenizer, AMegabyteOfOneLetterIsFast) {
  const auto tokenizer = tiny_moe();
  for (const char* unit : {"a", " ", "\n", "!", "\u0301", "<|im_", "\u4E2D"}) {
    std::string text;
    while (text.size() < (1u << 20)) text += unit;
    const auto start = std::chrono::steady_clock::now();
    const Ids ids = tokenizer->encode(text, ControlTokens::kRecognise);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(tokenizer->decode(ids, false), text);
    // A quadratic step would need minutes to hours.
    EXPECT_LT(elapsed.count(), 20) << unit;
  }
}

TEST(Tokenizer, AnyBytesDecodeToTheirNormalForm) {
  const auto tokenizer = tiny_moe();
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (size_t i = random() % 40; i > 0; --i) {
      if (random() % 3 == 0) bytes += "<|im_end|>"[random() % 10];
      if (random() % 3 == 0) append_utf8(static_cast<char32_t>(random() % 0xD800), bytes);
      bytes += static_cast<char>(random());
    }
    const Ids ids = tokenizer->encode(bytes, ControlTokens::kPlainText);
    ASSERT_EQ(tokenizer->decode(ids, true), to_nfc(to_valid_utf8(bytes)));
    for (const TokenId id : ids) ASSERT_FALSE(tokenizer->is_added(id));
  }
}

}  // namespace
}  // namespace tandem::text
