// Goal: a good header gives every tensor's place, and each way to break a file is refused with an
// error that says which tensor and why.
// Method: files built in memory from header text, valid ones broken in one place; a file written by
// the reference library (models/tiny-moe).
#include "model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "io/mapped_file.h"
#include "model/strict_json.h"

namespace tandem::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A file of `header` and `data_bytes` zero bytes.
std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data_bytes, '\0');
}

Result<SafetensorsHeader> parse(const std::string& file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)));
}

std::string error_of(const std::string& header, size_t data_bytes) {
  const Result<SafetensorsHeader> result = parse(file_of(header, data_bytes));
  return result.ok() ? "no error" : result.error().what;
}

/// The error of one F32 tensor "w" of shape [2, 3] with one key's value replaced.
std::string error_with(const std::string& key, const std::string& value) {
  Json tensor = Json::parse(R"({"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]})");
  tensor[key] = Json::parse(value);
  return error_of(Json{{"w", tensor}}.dump(), 24);
}

TEST(Safetensors, GivesPlaceTypeAndShape) {
  const std::string text =
      R"({"__metadata__": {"format": "pt"},
          "b": {"dtype": "BF16", "shape": [3, 2], "data_offsets": [4, 16]},
          "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}   )";
  const SafetensorsHeader header = parse(file_of(text, 16)).value();
  ASSERT_EQ(header.tensors.size(), 2u);
  const SafetensorsTensor& a = header.tensors[0];
  const SafetensorsTensor& b = header.tensors[1];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype.dtype, DType::kF32);
  EXPECT_TRUE(a.shape.empty());
  EXPECT_EQ(a.offset, 8 + text.size());
  EXPECT_EQ(a.bytes, 4u);
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.dtype.dtype, DType::kBF16);
  EXPECT_THAT(b.shape, ElementsAre(3, 2));
  EXPECT_EQ(b.offset, 8 + text.size() + 4);
  EXPECT_EQ(b.bytes, 12u);
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(Safetensors, ReadsWhatTheReferenceLibraryWrote) {
  const io::MappedFile file =
      io::MappedFile::open("models/tiny-moe/model-00001-of-00002.safetensors").value();
  const SafetensorsHeader header = parse_safetensors_header(file.bytes()).value();
  EXPECT_GT(header.tensors.size(), 100u);
  EXPECT_EQ(header.tensors.back().offset + header.tensors.back().bytes, file.bytes().size());
}

TEST(Safetensors, EmptyTensorsAndEmptyFilesAreLegal) {
  EXPECT_TRUE(parse(file_of("{}", 0))->tensors.empty());
  const SafetensorsHeader header =
      parse(file_of(R"({"w": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
                        "z": {"dtype": "F32", "shape": [0, 281474976710656, 281474976710656],
                              "data_offsets": [0, 0]}})",
                    2))
          .value();
  EXPECT_EQ(header.tensors[0].name, "z");
  EXPECT_EQ(header.tensors[0].bytes, 0u);
}

TEST(Safetensors, TypesWithoutAKernelStillHaveASize) {
  const SafetensorsHeader header =
      parse(file_of(R"({"w": {"dtype": "F4", "shape": [6], "data_offsets": [0, 3]}})", 3)).value();
  EXPECT_STREQ(header.tensors[0].dtype.name, "F4");
  EXPECT_FALSE(header.tensors[0].dtype.dtype.has_value());
  EXPECT_THAT(error_of(R"({"w": {"dtype": "F4", "shape": [5], "data_offsets": [0, 3]}})", 3),
              HasSubstr("ends inside a byte"));
}

TEST(Safetensors, EveryTruncationOfAFileIsRefused) {
  const std::string file =
      file_of(R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", 8);
  ASSERT_TRUE(parse(file).ok());
  for (size_t n = 0; n < file.size(); ++n) {
    const Result<SafetensorsHeader> result = parse(file.substr(0, n));
    ASSERT_FALSE(result.ok()) << n;
    EXPECT_EQ(result.error().code, Code::kDataLoss) << n;
  }
  EXPECT_THAT(parse(file.substr(0, file.size() - 1)).error().what,
              HasSubstr("tensor \"w\": ends at byte 8 of the data, but the file has only 7"));
  EXPECT_THAT(parse(file.substr(0, 20)).error().what, HasSubstr("truncated"));
}

TEST(Safetensors, HugeHeaderLengthsAreRefused) {
  for (uint64_t length : {uint64_t{100'000'001}, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string file = file_of("{}", 0);
    std::memcpy(file.data(), &length, 8);
    EXPECT_THAT(parse(file).error().what, HasSubstr("at most 100000000 are allowed"));
  }
  std::string file = file_of("{}", 0);
  const uint64_t length = 3;
  std::memcpy(file.data(), &length, 8);
  EXPECT_THAT(parse(file).error().what, HasSubstr("the file ends after 2"));
}

TEST(Safetensors, HeaderMustBeOneObject) {
  EXPECT_THAT(error_of("[]", 0), HasSubstr("does not begin with an object"));
  EXPECT_THAT(error_of(" {}", 0), HasSubstr("does not begin with an object"));
  EXPECT_THAT(error_of("{", 0), HasSubstr("the header: not valid JSON"));
  EXPECT_THAT(error_of("{}x", 0), HasSubstr("the header: not valid JSON"));
  EXPECT_THAT(error_of(std::string("{}\0", 3), 0), HasSubstr("zero byte"));
  EXPECT_THAT(error_of("{\"a\": [[[[]]]]}", 0), HasSubstr("nested deeper"));
  EXPECT_THAT(error_of("{\"w\": 3}", 0), HasSubstr("tensor \"w\": expected an object, not 3"));
}

TEST(Safetensors, RepeatedNamesAreRefused) {
  const std::string w = R"("w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]})";
  EXPECT_THAT(error_of("{" + w + "," + w + "}", 1), HasSubstr("\"w\" appears twice"));
  EXPECT_THAT(error_of(R"({"w": {"dtype": "U8", "dtype": "U8"}})", 0), HasSubstr("appears twice"));
}

TEST(Safetensors, NamesHaveLimits) {
  const std::string tensor = R"({"dtype": "U8", "shape": [0], "data_offsets": [0, 0]})";
  EXPECT_EQ(error_of("{\"" + std::string(1024, 'a') + "\": " + tensor + "}", 0), "no error");
  EXPECT_THAT(error_of("{\"" + std::string(1025, 'a') + "\": " + tensor + "}", 0),
              HasSubstr("longer than 1024"));
  EXPECT_THAT(error_of("{\"\": " + tensor + "}", 0), HasSubstr("empty name"));
  EXPECT_THAT(error_of("{\"a\\u0000b\": " + tensor + "}", 0), HasSubstr("contains a zero byte"));
}

TEST(Safetensors, WrongFieldsAreRefused) {
  EXPECT_THAT(error_with("dtype", "\"F8_E4M3FNUZ\""), HasSubstr("unknown dtype \"F8_E4M3FNUZ\""));
  EXPECT_THAT(error_with("dtype", "3"), HasSubstr("\"dtype\" is 3"));
  EXPECT_THAT(error_with("dtype", "null"), HasSubstr("absent"));
  EXPECT_THAT(error_with("dtype", "\"BF16\""), HasSubstr("has 24 bytes, but BF16 [2,3] needs 12"));
  EXPECT_THAT(error_with("shape", "[2, -3]"), HasSubstr("\"shape\" is -3"));
  EXPECT_THAT(error_with("shape", "[2, 3.0]"), HasSubstr("\"shape\" is 3.0"));
  EXPECT_THAT(error_with("shape", "[281474976710656, 281474976710656]"), HasSubstr("too large"));
  EXPECT_THAT(error_with("shape", "[18446744073709551615]"), HasSubstr("\"shape\" is 1844674"));
  EXPECT_THAT(error_with("shape", "[1,1,1,1,1,1,1,2,3]"), HasSubstr("has 9 dimensions"));
  EXPECT_THAT(error_with("shape", "[2, 4]"), HasSubstr("has 24 bytes, but F32 [2,4] needs 32"));
  EXPECT_THAT(error_with("data_offsets", "[24, 0]"), HasSubstr("begins behind its end"));
  EXPECT_THAT(error_with("data_offsets", "[0, 25]"), HasSubstr("ends at byte 25"));
  EXPECT_THAT(error_with("data_offsets", "[0, 24, 24]"), HasSubstr("a begin and an end"));
  EXPECT_THAT(error_with("data_offsets", "[0, 9223372036854775808]"),
              HasSubstr("\"data_offsets\" is 9223372036854775808"));
}

TEST(Safetensors, TensorsFillTheDataExactly) {
  const auto two = [](const char* first, const char* second, size_t data_bytes) {
    return error_of(std::string(R"({"v": {"dtype": "U8", "shape": [4], "data_offsets": )") + first +
                        R"(}, "w": {"dtype": "U8", "shape": [4], "data_offsets": )" + second + "}}",
                    data_bytes);
  };
  EXPECT_EQ(two("[0, 4]", "[4, 8]", 8), "no error");
  EXPECT_EQ(two("[4, 8]", "[0, 4]", 8), "no error");
  EXPECT_THAT(two("[0, 4]", "[3, 7]", 7), HasSubstr("tensor \"w\" overlaps the one before it"));
  EXPECT_THAT(two("[0, 4]", "[0, 4]", 4), HasSubstr("overlaps"));
  EXPECT_THAT(two("[0, 4]", "[5, 9]", 9), HasSubstr("tensor \"w\" leaves a hole"));
  EXPECT_THAT(two("[1, 5]", "[5, 9]", 9), HasSubstr("tensor \"v\" leaves a hole"));
  EXPECT_THAT(two("[0, 4]", "[4, 8]", 9), HasSubstr("1 bytes behind its last tensor"));
}

TEST(Safetensors, MetadataIsText) {
  EXPECT_THAT(error_of(R"({"__metadata__": {"a": 1}})", 0), HasSubstr("holds 1, which is not"));
  EXPECT_THAT(error_of(R"({"__metadata__": []})", 0), HasSubstr("not an object"));
}

}  // namespace
}  // namespace tandem::model
