// Goal: a tokenizer.json that is malformed or needs what we do not have is one Error that names the
// place; a sound one is read in full.
// Method: a small valid document with one change each, and every prefix of the document's text.
#include "text/tokenizer_json.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/test_tokenizer_json.h"

namespace tandem::text {
namespace {

using nlohmann::json;

json changed(const std::string& pointer, const json& value) {
  json document = small_tokenizer_json();
  document[json::json_pointer(pointer)] = value;
  return document;
}

json without(const std::string& parent, const std::string& key) {
  json document = small_tokenizer_json();
  document[json::json_pointer(parent)].erase(key);
  return document;
}

void expect_error(const std::string& text, Code code, const std::string& part) {
  const Result<TokenizerDefinition> definition = parse_tokenizer_json(text);
  ASSERT_FALSE(definition.ok()) << part;
  EXPECT_EQ(definition.error().code, code) << definition.error().what;
  EXPECT_NE(definition.error().what.find(part), std::string::npos)
      << definition.error().what << "\n  lacks: " << part;
  EXPECT_TRUE(definition.error().what.starts_with("tokenizer.json: "));
}

TEST(TokenizerJson, ReadsASoundDocument) {
  const Result<TokenizerDefinition> definition =
      parse_tokenizer_json(small_tokenizer_json().dump());
  ASSERT_TRUE(definition.ok()) << definition.error().what;
  EXPECT_EQ(definition->split_rule, SplitRule::kQwen3);
  EXPECT_TRUE(definition->normalizes_nfc);
  EXPECT_EQ(definition->tokens.size(), 261u);
  EXPECT_EQ(definition->byte_tokens[0xFF], 0xFF);
  ASSERT_EQ(definition->merges.size(), 5u);
  EXPECT_EQ(definition->merges[2].left, 256);
  EXPECT_EQ(definition->merges[2].right, 257);
  EXPECT_EQ(definition->merges[2].merged, 258);
  ASSERT_EQ(definition->added_tokens.size(), 2u);
  EXPECT_EQ(definition->added_tokens[0].content, "<|end|>");
  EXPECT_TRUE(definition->added_tokens[0].special);
  EXPECT_FALSE(definition->added_tokens[1].special);
}

TEST(TokenizerJson, AcceptsTheOtherSpellingsOfTheSameThing) {
  const std::vector<json> documents = {
      changed("/model/merges/0", {"\u0120", "t"}),
      changed("/model/dropout", 0.0),
      changed("/model/continuing_subword_prefix", ""),
      changed("/normalizer", nullptr),
      changed("/post_processor", {{"type", "ByteLevel"}}),
      changed("/truncation", {{"max_length", 512}}),
      changed("/unknown_member", 1),
      changed("/model/vocab/<|end|>", 261),
      without("", "added_tokens"),
      without("/model", "dropout"),
      without("/model", "ignore_merges"),
  };
  for (const json& document : documents) {
    const Result<TokenizerDefinition> definition = parse_tokenizer_json(document.dump());
    EXPECT_TRUE(definition.ok()) << definition.error().what;
  }
}

TEST(TokenizerJson, NamesWhatIsMalformed) {
  struct Case {
    json document;
    std::string part;
  };
  const std::vector<Case> cases = {
      {json::array(), "the document is array"},
      {without("", "model"), "model: is missing"},
      {without("", "decoder"), "decoder: is missing"},
      {without("/model", "vocab"), "model.vocab: is missing"},
      {without("/model", "merges"), "model.merges: is missing"},
      {without("/model", "type"), "model.type: is missing"},
      {without("/added_tokens/0", "lstrip"), "added_tokens[0].lstrip: is missing"},
      {changed("/model", 3), "model: is number, expected an object"},
      {changed("/model/vocab", json::array()), "model.vocab: is array"},
      {changed("/model/merges", json::object()), "model.merges: is object"},
      {changed("/model/vocab/a", "x"), "model.vocab: \"a\" must have an integer"},
      {changed("/model/vocab/a", 1.5), "model.vocab: \"a\" must have an integer"},
      {changed("/model/vocab/a", -1), "model.vocab: \"a\" must have an integer"},
      {changed("/model/vocab/a", 4194304), "model.vocab: \"a\" must have an integer"},
      {changed("/model/vocab/a", UINT64_MAX), "model.vocab: \"a\" must have an integer"},
      {changed("/model/vocab/a", 98), "has id 98, which another token has too"},
      {changed("/model/vocab/a b", 300), "\"a b\" is not spelled in the byte-level alphabet"},
      {changed("/model/vocab/", 300), "\"\" is not spelled in the byte-level alphabet"},
      {changed("/model/vocab/<|end|>", 300), "\"<|end|>\" has id 300, but added_tokens"},
      {changed("/model/vocab/bb", 261), "\"bb\" has id 261, but added_tokens"},
      {without("/model/vocab", "a"), "model.vocab: has no token for the single byte 97"},
      {changed("/model/merges/1", "he"), "model.merges[1]: is no pair"},
      {changed("/model/merges/1", "h e l"), "model.merges[1]: is no pair"},
      {changed("/model/merges/1", {"h"}), "model.merges[1]: is no pair"},
      {changed("/model/merges/1", {"h", 1}), "model.merges[1]: is no pair"},
      {changed("/model/merges/1", nullptr), "model.merges[1]: is no pair"},
      {changed("/model/merges/1", "h zz"), "model.merges[1]: \"zz\" is not in model.vocab"},
      {changed("/model/merges/1", " e"), "model.merges[1]: \"\" is not in model.vocab"},
      {changed("/model/merges/1", "h z"), "model.merges[1]: merges into \"hz\""},
      {changed("/added_tokens", 1), "added_tokens: is number"},
      {changed("/added_tokens/1", 1), "added_tokens[1]: is number"},
      {changed("/added_tokens/1/id", "1"), "added_tokens[1].id: is string"},
      {changed("/added_tokens/1/id", -1), "added_tokens[1].id: is out of range"},
      {changed("/added_tokens/1/id", UINT64_MAX), "added_tokens[1].id: is out of range"},
      {changed("/added_tokens/1/id", 261), "added_tokens[1]: id 261 is in the list twice"},
      {changed("/added_tokens/1/id", 97), "\"a\" has id 97, but added_tokens"},
      {changed("/added_tokens/1/content", ""), "added_tokens[1].content: is empty"},
      {changed("/added_tokens/1/content", 7), "added_tokens[1].content: is number"},
      {changed("/added_tokens/1/content", "<|end|>"), "content \"<|end|>\" is in the list twice"},
      {changed("/added_tokens/1/special", 1), "added_tokens[1].special: is number"},
      {changed("/pre_tokenizer", nullptr), "pre_tokenizer: is null"},
      {changed("/pre_tokenizer/pretokenizers", "x"), "pre_tokenizer.pretokenizers: is string"},
      {changed("/normalizer/type", 5), "normalizer.type: is number"},
  };
  for (const Case& c : cases) expect_error(c.document.dump(), Code::kInvalidArgument, c.part);
}

TEST(TokenizerJson, NamesWhatIsUnsupported) {
  struct Case {
    json document;
    std::string part;
  };
  const std::string steps = "pre_tokenizer.pretokenizers";
  const std::vector<Case> cases = {
      {changed("/normalizer/type", "NFKC"), "normalizer.type: \"NFKC\" is not supported"},
      {changed("/model/type", "Unigram"), "model.type: \"Unigram\" is not supported"},
      {changed("/decoder/type", "Fuse"), "decoder.type: \"Fuse\" is not supported"},
      {changed("/post_processor", {{"type", "TemplateProcessing"}}), "post_processor.type"},
      {changed("/pre_tokenizer/type", "ByteLevel"), "pre_tokenizer.type"},
      {changed("/pre_tokenizer/pretokenizers", json::array()), steps + ": 0 elements"},
      {changed("/pre_tokenizer/pretokenizers/0/type", "Digits"), steps + "[0].type"},
      {changed("/pre_tokenizer/pretokenizers/0/behavior", "Removed"), steps + "[0].behavior"},
      {changed("/pre_tokenizer/pretokenizers/0/invert", true), steps + "[0].invert"},
      {changed("/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\w+"),
       steps + "[0].pattern.Regex"},
      {changed("/pre_tokenizer/pretokenizers/1/add_prefix_space", true),
       steps + "[1].add_prefix_space"},
      {changed("/pre_tokenizer/pretokenizers/1/use_regex", true), steps + "[1].use_regex"},
      {changed("/model/dropout", 0.1), "model.dropout"},
      {changed("/model/unk_token", "<unk>"), "model.unk_token: \"<unk>\""},
      {changed("/model/continuing_subword_prefix", "##"), "model.continuing_subword_prefix"},
      {changed("/model/end_of_word_suffix", "</w>"), "model.end_of_word_suffix"},
      {changed("/model/byte_fallback", true), "model.byte_fallback: true"},
      {changed("/model/ignore_merges", true), "model.ignore_merges: true"},
      {changed("/added_tokens/1/single_word", true), "added_tokens[1].single_word: true"},
  };
  for (const Case& c : cases) expect_error(c.document.dump(), Code::kUnimplemented, c.part);
}

TEST(TokenizerJson, LongValuesAreCutInErrors) {
  const std::string key(100000, 'z');
  const Result<TokenizerDefinition> definition =
      parse_tokenizer_json(changed("/model/vocab/" + key, "x").dump());
  ASSERT_FALSE(definition.ok());
  EXPECT_LT(definition.error().what.size(), 300u);
}

TEST(TokenizerJson, DamagedTextIsAnError) {
  const std::string text = small_tokenizer_json().dump();
  for (size_t bytes = 0; bytes < text.size(); bytes += bytes < 300 ? 1 : 97) {
    expect_error(text.substr(0, bytes), Code::kInvalidArgument, "is not valid JSON at byte");
  }
  expect_error(text + '\0', Code::kInvalidArgument, "is not valid JSON at byte");
  expect_error(text + "x", Code::kInvalidArgument, "is not valid JSON at byte");
  expect_error("{\"a\": \"\xFF\"}", Code::kInvalidArgument, "is not valid JSON at byte 8");
  expect_error("{\"a\": 1e999}", Code::kInvalidArgument, "a number is too large");
  expect_error(std::string(1000000, '['), Code::kInvalidArgument, "is not valid JSON at byte");
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  expect_error(deep, Code::kInvalidArgument, "the document is array");
}

}  // namespace
}  // namespace tandem::text
