// Goal: a model folder is read whole or refused with an error that names the file and the fix.
// Method: models/tiny-moe, and folders written here with one thing wrong.
#include "model/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/scratch_folder.h"

namespace tandem::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kConfig =
    R"({"model_type": "qwen3", "rope_theta": 1e6, "vocab_size": 100, "eos_token_id": 5})";

std::string error_of(const std::filesystem::path& folder) {
  const Result<ModelFiles> files = ModelFiles::open(folder);
  return files.ok() ? "no error" : files.error().what;
}

TEST(ModelFiles, ReadsTheBundledModel) {
  const ModelFiles files = ModelFiles::open("models/tiny-moe").value();
  EXPECT_EQ(files.config.layers_count, 4);
  EXPECT_EQ(files.generation.temperature, 0.6f);
  EXPECT_EQ(files.generation.top_p, 0.95f);
  EXPECT_EQ(files.generation.top_k, 20);
  EXPECT_FALSE(files.generation.min_p.has_value());
  EXPECT_THAT(files.stop_token_ids, ElementsAre(4070, 4072));
  EXPECT_EQ(files.tokenizer, "models/tiny-moe/tokenizer.json");
  EXPECT_EQ(files.tokenizer_config, "models/tiny-moe/tokenizer_config.json");
  EXPECT_FALSE(files.chat_template.has_value());
}

TEST(ModelFiles, OnlyTheConfigIsNeeded) {
  const ModelFiles files = ModelFiles::open("models/bench-moe").value();
  EXPECT_FALSE(files.tokenizer.has_value());
  EXPECT_FALSE(files.generation.temperature.has_value());
  EXPECT_THAT(files.stop_token_ids, ElementsAre(0));
}

TEST(ModelFiles, StopTokensAreTheUnionOfBothFiles) {
  io::ScratchFolder folder;
  folder.write("config.json", kConfig);
  folder.write("generation_config.json", R"({"eos_token_id": [7, 5, 3]})");
  folder.write("chat_template.jinja", "{{ messages }}");
  const ModelFiles files = ModelFiles::open(folder.path()).value();
  EXPECT_THAT(files.stop_token_ids, ElementsAre(3, 5, 7));
  EXPECT_EQ(files.chat_template, folder.path() / "chat_template.jinja");
}

TEST(ModelFiles, WrongFoldersAreNamed) {
  io::ScratchFolder folder;
  EXPECT_THAT(error_of(folder.path() / "absent"), HasSubstr("absent does not exist"));
  EXPECT_THAT(error_of(folder.write("file", "")), HasSubstr("file is not a folder"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("holds no config.json"));
  folder.write("config.json", "{");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("config.json: not valid JSON"));
  folder.write("config.json", kConfig);
  folder.write("generation_config.json", R"({"top_p": 2})");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("generation_config.json: \"top_p\" is 2"));
}

TEST(GenerationConfig, ReadsEveryField) {
  const GenerationDefaults defaults =
      parse_generation_config(R"({"temperature": 0.7, "top_k": -1, "top_p": 0.8, "min_p": 0.05,
          "repetition_penalty": 1.05, "eos_token_id": 3, "do_sample": true, "other": []})",
                              10)
          .value();
  EXPECT_EQ(defaults.temperature, 0.7f);
  EXPECT_EQ(defaults.top_k, 0);
  EXPECT_EQ(defaults.top_p, 0.8f);
  EXPECT_EQ(defaults.min_p, 0.05f);
  EXPECT_EQ(defaults.repetition_penalty, 1.05f);
  EXPECT_THAT(defaults.eos_token_ids, ElementsAre(3));
}

TEST(GenerationConfig, WithoutSamplingTheTemperatureIsZero) {
  EXPECT_EQ(parse_generation_config(R"({"do_sample": false, "temperature": 0.7})", 10)->temperature,
            0.0f);
}

TEST(GenerationConfig, WrongValuesAreNamed) {
  const auto error = [](std::string_view text) {
    return parse_generation_config(text, 10).error().what;
  };
  EXPECT_THAT(error("3"), HasSubstr("is a JSON object"));
  EXPECT_THAT(error(R"({"temperature": -1})"), HasSubstr("\"temperature\" is -1"));
  EXPECT_THAT(error(R"({"top_k": 1.5})"), HasSubstr("\"top_k\" is 1.5"));
  EXPECT_THAT(error(R"({"eos_token_id": [10]})"), HasSubstr("integer from 0 to 9"));
  EXPECT_THAT(error(R"({"do_sample": "no"})"), HasSubstr("expected true or false"));
}

}  // namespace
}  // namespace tandem::model
