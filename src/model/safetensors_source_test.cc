// Goal: the tensors of a folder come back whole whichever way it is cut into files, and everything
// wrong with a folder is told at once.
// Method: small folders written here; models/tiny-moe as the reference library cut it.
#include "model/safetensors_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "io/scratch_folder.h"
#include "model/safetensors_test_file.h"

namespace tandem::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TestTensor bf16_of(const std::string& name, char fill) {
  return {.name = name, .shape = {3, 2}, .bytes = 12, .fill = fill};
}

std::string index_of(const Json& weight_map) {
  return Json{{"metadata", {{"total_size", 1}}}, {"weight_map", weight_map}}.dump();
}

std::string error_of(const io::ScratchFolder& folder) {
  const auto source = SafetensorsSource::open(folder.path());
  return source.ok() ? "no error" : source.error().what;
}

TEST(SafetensorsSource, ReadsASingleFile) {
  io::ScratchFolder folder;
  folder.write("model.safetensors", safetensors_file({bf16_of("a", 'A'), bf16_of("b", 'B')}));
  SafetensorsSource source = SafetensorsSource::open(folder.path()).value();
  EXPECT_THAT(source.names(), ElementsAre("a", "b"));
  const WeightView view = source.tensor("b").value();
  EXPECT_EQ(view.dtype, DType::kBF16);
  EXPECT_THAT(view.shape, ElementsAre(3, 2));
  ASSERT_EQ(view.bytes.size(), 12u);
  for (std::byte byte : view.bytes) EXPECT_EQ(byte, std::byte{'B'});
  source.release("b");
  EXPECT_EQ(source.tensor("b")->bytes[11], std::byte{'B'});
  source.release("absent");
  EXPECT_EQ(source.tensor("absent").error().code, Code::kNotFound);
}

TEST(SafetensorsSource, ReadsShards) {
  io::ScratchFolder folder;
  folder.write("1.safetensors", safetensors_file({bf16_of("a", 'A'), bf16_of("c", 'C')}));
  folder.write("2.safetensors", safetensors_file({bf16_of("b", 'B')}));
  folder.write("model.safetensors.index.json",
               index_of({{"a", "1.safetensors"}, {"b", "2.safetensors"}, {"c", "1.safetensors"}}));
  SafetensorsSource source = SafetensorsSource::open(folder.path()).value();
  EXPECT_EQ(source.shards_count(), 2u);
  EXPECT_THAT(source.names(), UnorderedElementsAre("a", "b", "c"));
  EXPECT_EQ(source.tensor("b")->bytes[0], std::byte{'B'});
  EXPECT_EQ(source.tensor("c")->bytes[0], std::byte{'C'});
}

TEST(SafetensorsSource, ViewsSurviveMovingTheSource) {
  io::ScratchFolder folder;
  folder.write("model.safetensors", safetensors_file({bf16_of("a", 'A')}));
  SafetensorsSource source = SafetensorsSource::open(folder.path()).value();
  const WeightView view = source.tensor("a").value();
  const SafetensorsSource moved = std::move(source);
  EXPECT_EQ(view.bytes[0], std::byte{'A'});
}

TEST(SafetensorsSource, ReadsTheBundledModel) {
  SafetensorsSource source = SafetensorsSource::open("models/tiny-moe").value();
  EXPECT_EQ(source.shards_count(), 2u);
  const WeightView view = source.tensor("model.embed_tokens.weight").value();
  EXPECT_THAT(view.shape, ElementsAre(4096, 256));
  EXPECT_EQ(view.bytes.size(), 4096u * 256 * 2);
}

TEST(SafetensorsSource, DtypesWithoutAKernelAreDescribedButNotRead) {
  io::ScratchFolder folder;
  folder.write("model.safetensors",
               safetensors_file({{.name = "a", .dtype = "F64", .shape = {1}, .bytes = 8}}));
  SafetensorsSource source = SafetensorsSource::open(folder.path()).value();
  EXPECT_EQ(source.describe("a")->dtype_name, "F64");
  EXPECT_FALSE(source.describe("a")->dtype.has_value());
  EXPECT_THAT(source.tensor("a").error().what, HasSubstr("dtype F64, which is not supported"));
}

TEST(SafetensorsSource, FolderWithoutWeightsSaysWhatIsExpected) {
  io::ScratchFolder folder;
  EXPECT_THAT(error_of(folder), HasSubstr("neither model.safetensors nor model.safetensors.index"));
}

TEST(SafetensorsSource, DamagedSingleFileIsNamed) {
  io::ScratchFolder folder;
  folder.write("model.safetensors", safetensors_file({bf16_of("a", 'A')}).substr(0, 40));
  EXPECT_THAT(error_of(folder), HasSubstr("model.safetensors: the header has"));
}

TEST(SafetensorsSource, EverythingWrongIsToldAtOnce) {
  io::ScratchFolder folder;
  folder.write("1.st", safetensors_file({bf16_of("a", 'A'), bf16_of("unlisted", 'U')}));
  folder.write("2.st", safetensors_file({bf16_of("a", 'A'), bf16_of("b", 'B')}));
  folder.write("3.st", "short");
  folder.write(
      "model.safetensors.index.json",
      index_of({{"a", "1.st"}, {"gone", "1.st"}, {"b", "2.st"}, {"c", "3.st"}, {"d", "4.st"}}));
  const std::string error = error_of(folder);
  EXPECT_THAT(error, HasSubstr("that the index does not name there (1): unlisted (1.st)"));
  EXPECT_THAT(error, HasSubstr("of the index that are not in their shard (1): gone (1.st)"));
  EXPECT_THAT(error, HasSubstr("tensors in two shards (1): a (1.st and 2.st)"));
  EXPECT_THAT(error, HasSubstr("shards that cannot be read (2)"));
  EXPECT_THAT(error, HasSubstr("3.st: not a safetensors file"));
  EXPECT_THAT(error, HasSubstr("4.st: No such file"));
}

TEST(SafetensorsSource, BrokenIndexIsNamed) {
  io::ScratchFolder folder;
  const auto error_with = [&](const std::string& index) {
    folder.write("model.safetensors.index.json", index);
    return error_of(folder);
  };
  EXPECT_THAT(error_with("{"), HasSubstr("index.json: not valid JSON"));
  EXPECT_THAT(error_with("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_with("{}"), HasSubstr("\"weight_map\" is absent"));
  EXPECT_THAT(error_with("{\"weight_map\": []}"), HasSubstr("\"weight_map\" is []"));
  EXPECT_THAT(error_with("{\"weight_map\": {}}"), HasSubstr("names no tensor"));
  for (const char* name : {"../a", "/etc/passwd", "a/b", "..", ".", "", "a\\\\b", "a\\u0000b"}) {
    EXPECT_THAT(error_with(std::string("{\"weight_map\": {\"a\": \"") + name + "\"}}"),
                HasSubstr("not a plain file name"))
        << name;
  }
  EXPECT_THAT(error_with("{\"weight_map\": {\"a\": 3}}"), HasSubstr("is said to be in 3"));
}

}  // namespace
}  // namespace tandem::model
