// Goal: the native renderer and the Jinja helper print what transformers prints, refuse what it
// refuses, agree on which bytes came from the client, and the prompt encodes to the same tokens.
// Method: case files that tools/chat_cases.py describes. The committed ones are small and
// seeded; tools/check_chat_template.py makes a large one and names it in TANDEM_CHAT_CASES.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text/jinja_pool.h"
#include "text/native_qwen3_template.h"
#include "text/tokenizer.h"

namespace tandem::text {
namespace {

using nlohmann::json;

std::vector<std::string> case_files() {
  const char* given = std::getenv("TANDEM_CHAT_CASES");
  if (given != nullptr) return {given};
  return {"src/text/testdata/chat_qwen3.jsonl", "src/text/testdata/chat_others.jsonl"};
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  auto tokenizer = Tokenizer::create(std::string{std::istreambuf_iterator<char>(file), {}});
  if (!tokenizer.ok()) ADD_FAILURE() << tokenizer.error().what;
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

std::string describe(const RenderedPrompt& prompt) {
  std::string description;
  for (const auto& span : prompt.spans) {
    description += (span.from_client ? "client " : "template ") + json(span.text).dump() + "\n";
  }
  return description;
}

ChatInput input_of(const json& line) {
  return {.messages_json = line.at("messages"),
          .tools_json = line.at("tools"),
          .variables_json = line.at("variables"),
          .add_generation_prompt = line.at("add_generation_prompt"),
          .continue_final_message = line.at("continue_final_message")};
}

void expect_answer(const Result<RenderedPrompt>& prompt, const json& line) {
  const json& expected = line.at("text");
  if (expected.is_null()) {
    EXPECT_FALSE(prompt.ok()) << "transformers refuses:\n" << prompt->text();
    if (!prompt.ok()) {
      EXPECT_EQ(prompt.error().code, Code::kInvalidArgument) << prompt.error().what;
    }
    return;
  }
  ASSERT_TRUE(prompt.ok()) << prompt.error().what;
  EXPECT_EQ(prompt->text(), expected.get<std::string>());
}

struct Counts {
  int cases = 0;
  int native = 0;
  int tokens = 0;
};

using Pools = std::map<std::string, std::unique_ptr<ChatTemplate>>;

Pools make_pools(const json& header) {
  Pools pools;
  for (const auto& [name, source] : header.at("templates").items()) {
    auto pool = JinjaPool::create(
        {.source = source, .special_tokens_json = header.at("special_tokens").dump()});
    EXPECT_TRUE(pool.ok()) << name << ": " << pool.error().what;
    if (pool.ok()) pools[name] = std::move(*pool);
    EXPECT_EQ(is_qwen3_template(source.get<std::string>()), name == "qwen3") << name;
  }
  return pools;
}

void check_file(const std::string& path, Counts& counts) {
  std::ifstream file(path);
  std::string text;
  ASSERT_TRUE(std::getline(file, text)) << path;
  const json header = json::parse(text);
  const Pools pools = make_pools(header);
  const auto tokenizer = load_tokenizer(header.at("tokenizer"));
  ASSERT_NE(tokenizer, nullptr);
  const auto native = make_native_qwen3_template(8u << 20);
  for (int number = 2; std::getline(file, text); ++number) {
    SCOPED_TRACE(path + ":" + std::to_string(number));
    const json line = json::parse(text);
    const auto by_jinja = pools.at(line.at("template"))->render(input_of(line));
    expect_answer(by_jinja, line);
    ++counts.cases;
    if (line.at("template") != "qwen3") continue;
    const auto by_native = native->render(input_of(line));
    expect_answer(by_native, line);
    ++counts.native;
    if (!by_native.ok() || !by_jinja.ok()) continue;
    EXPECT_EQ(describe(*by_native), describe(*by_jinja));
    if (!line.contains("ids")) continue;
    EXPECT_EQ(by_native->encode(*tokenizer), line.at("ids").get<std::vector<TokenId>>());
    ++counts.tokens;
  }
}

TEST(ChatTemplateParity, SameAsTransformers) {
  Counts counts;
  for (const std::string& path : case_files()) check_file(path, counts);
  // A file that lost its cases must not pass.
  EXPECT_GT(counts.cases, 60);
  EXPECT_GT(counts.native, 40);
  EXPECT_GT(counts.tokens, 10);
  std::printf("%d cases of transformers, %d of them native, %d also as tokens\n", counts.cases,
              counts.native, counts.tokens);
}

}  // namespace
}  // namespace tandem::text
