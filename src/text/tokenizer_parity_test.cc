// Goal: ids and texts are those of the `tokenizers` library, in both directions, at once and
// streamed.
// Method: case files that tools/tokenizer_cases.py describes. The committed ones are small and
// seeded (tools/make_tokenizer_goldens.py). tools/check_tokenizer.py makes large ones for more
// tokenizers and names them in TANDEM_TOKENIZER_CASES, separated by colons.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace tandem::text {
namespace {

std::vector<std::string> case_files() {
  std::vector<std::string> paths = {"src/text/testdata/tokenizer_qwen3.jsonl",
                                    "src/text/testdata/tokenizer_qwen35.jsonl",
                                    "src/text/testdata/tokenizer_flags.jsonl"};
  const char* more = std::getenv("TANDEM_TOKENIZER_CASES");
  std::string rest = more == nullptr ? "" : more;
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    paths.push_back(rest.substr(0, colon));
    rest.erase(0, colon == std::string::npos ? rest.size() : colon + 1);
  }
  return paths;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::unique_ptr<Tokenizer> make_tokenizer(const nlohmann::json& header) {
  std::string json = read_file(header.at("tokenizer"));
  for (const auto& replacement : header.at("replacements")) {
    const std::string old = replacement.at(0);
    const std::string wanted = replacement.at(1);
    for (size_t at = json.find(old); at != std::string::npos;
         at = json.find(old, at + wanted.size())) {
      json.replace(at, old.size(), wanted);
    }
  }
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::create(json);
  if (!tokenizer.ok()) {
    ADD_FAILURE() << tokenizer.error().what;
    return nullptr;
  }
  return std::move(*tokenizer);
}

std::string stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special) {
  Detokenizer detokenizer(tokenizer, {.skip_special = skip_special});
  std::string text;
  for (const TokenId id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

class TokenizerParity : public testing::TestWithParam<std::string> {};

TEST_P(TokenizerParity, EncodesAndDecodesLikeTheReference) {
  std::ifstream file(GetParam());
  std::string line;
  ASSERT_TRUE(std::getline(file, line)) << GetParam();
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(nlohmann::json::parse(line));
  ASSERT_NE(tokenizer, nullptr);

  int encoded_count = 0;
  int decoded_count = 0;
  int mismatches_count = 0;
  // The line names the case well enough; a flood of them would help nobody.
  const auto check = [&](const auto& actual, const auto& expected, const char* what) {
    if (actual == expected) return;
    ++mismatches_count;
    if (mismatches_count > 5) return;
    EXPECT_EQ(actual, expected) << what << ": " << line;
  };
  while (std::getline(file, line)) {
    const nlohmann::json expected = nlohmann::json::parse(line);
    const std::vector<TokenId> ids = expected.at("ids");
    if (expected.contains("text")) {
      const std::string text = expected.at("text");
      const std::vector<TokenId> plain_ids = expected.value("plain_ids", ids);
      check(tokenizer->encode(text, ControlTokens::kRecognise), ids, "encode, recognised");
      check(tokenizer->encode(text, ControlTokens::kPlainText), plain_ids, "encode, plain");
      ++encoded_count;
    } else {
      const std::string all = expected.at("all");
      const std::string shown = expected.value("shown", all);
      check(tokenizer->decode(ids, false), all, "decode, all");
      check(tokenizer->decode(ids, true), shown, "decode, without special tokens");
      check(stream(*tokenizer, ids, false), all, "stream, all");
      check(stream(*tokenizer, ids, true), shown, "stream, without special tokens");
      ++decoded_count;
    }
  }
  EXPECT_EQ(mismatches_count, 0) << GetParam();
  EXPECT_GT(encoded_count, 100);
  EXPECT_GT(decoded_count, 200);
  RecordProperty("encoded", encoded_count);
  RecordProperty("decoded", decoded_count);
}

INSTANTIATE_TEST_SUITE_P(Files, TokenizerParity, testing::ValuesIn(case_files()));

}  // namespace
}  // namespace tandem::text
