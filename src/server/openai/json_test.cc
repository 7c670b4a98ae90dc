// Goal: whatever bytes a client sends, the JSON layer answers with a document or one clear error,
// and whatever bytes we write become valid JSON.
// Method: hand-made hostile documents for each limit; written strings are read back with an
// independent parser.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "server/openai/json_parse.h"
#include "server/openai/json_text.h"

namespace tandem::server::openai {
namespace {

std::string failure_of(const std::string& text, JsonLimits limits = {}) {
  const auto parsed = parse_json(text, limits);
  const auto* error = std::get_if<ApiError>(&parsed);
  if (error == nullptr) return "";
  EXPECT_EQ(error->status, 400);
  EXPECT_EQ(error->code, "invalid_json");
  return error->message;
}

TEST(JsonParse, KeepsTheOrderOfKeys) {
  const auto parsed = parse_json(R"({"z":1,"a":[{"y":null,"b":2.5}],"m":"\u00e9"})", {});
  ASSERT_TRUE(std::holds_alternative<Json>(parsed));
  EXPECT_EQ(std::get<Json>(parsed).dump(), "{\"z\":1,\"a\":[{\"y\":null,\"b\":2.5}],\"m\":\"é\"}");
}

TEST(JsonParse, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{", "{]", "{\"a\":NaN}", "[1,]", "{} x", "{'a':1}", "[1e999]",
                           "// c\n{}", "\"\xff\"", "\"\\ud800\"", "\"\xed\xa0\x80\"", "[01]"}) {
    EXPECT_THAT(failure_of(text), testing::HasSubstr("not valid JSON")) << text;
  }
}

TEST(JsonParse, RefusesZeroBytesAndWhateverTheyHide) {
  using namespace std::string_literals;
  for (const std::string& text : {"{}\0"s, "{}\0{\"a\":1}"s, "\0{}"s, "{\"a\":\"\0\"}"s}) {
    EXPECT_THAT(failure_of(text), testing::HasSubstr("not valid JSON")) << text;
  }
}

TEST(JsonParse, RefusesDeepNestingBeforeRecursing) {
  const std::string deep = std::string(1'000'000, '[');
  EXPECT_THAT(failure_of(deep), testing::HasSubstr("nested deeper than 64"));
  std::string allowed = std::string(64, '[') + std::string(64, ']');
  EXPECT_EQ(failure_of(allowed), "");
  EXPECT_NE(failure_of('[' + allowed + ']'), "");
}

TEST(JsonParse, RefusesRepeatedKeysInSmallAndLargeObjects) {
  EXPECT_THAT(failure_of(R"({"a":1,"b":{"c":1,"c":2}})"),
              testing::HasSubstr("\"c\" appears twice"));
  EXPECT_EQ(failure_of(R"([{"a":1},{"a":2}])"), "");
  std::string large = "{";
  for (int i = 0; i < 100'000; ++i) large += "\"k" + std::to_string(i) + "\":0,";
  EXPECT_EQ(failure_of(large + "\"last\":0}"), "");
  EXPECT_THAT(failure_of(large + "\"k7\":0}"), testing::HasSubstr("\"k7\" appears twice"));
  EXPECT_THAT(failure_of(large + "\"k99999\":0}"), testing::HasSubstr("appears twice"));
}

TEST(JsonParse, BoundsTheNumberOfValues) {
  std::string many = "[0";
  for (int i = 0; i < 20; ++i) many += ",0";
  EXPECT_EQ(failure_of(many + "]", {.values_count_max = 22}), "");
  EXPECT_THAT(failure_of(many + "]", {.values_count_max = 21}), testing::HasSubstr("21 values"));
}

TEST(JsonText, WritesAnyBytesAsValidJson) {
  for (int first = 0; first < 256; ++first) {
    for (const std::string tail : {"", "a", "\x80", "\xa0\x80", "\x9f\xbf\xbf"}) {
      std::string text = "<";
      text += static_cast<char>(first);
      text += tail;
      std::string json;
      append_json_string(json, text);
      const auto read = nlohmann::json::parse(json, nullptr, false);
      ASSERT_FALSE(read.is_discarded()) << first << json;
      // Valid text survives unchanged; the independent parser decides what is valid.
      std::string raw = "\"";
      raw += text;
      raw += '"';
      const auto direct = nlohmann::json::parse(raw, nullptr, false);
      if (first >= 0x20 && !direct.is_discarded() && first != '\\') {
        EXPECT_EQ(read.get<std::string>(), text) << first;
      }
    }
  }
}

TEST(JsonText, EscapesControlCharacters) {
  std::string json;
  append_json_string(json, std::string_view("\0\n\"\\\x1f", 5));
  EXPECT_EQ(json, R"("\u0000\n\"\\\u001f")");
}

TEST(JsonText, WritesFloats) {
  std::string json;
  append_json_float(json, -0.25f);
  json += ' ';
  append_json_float(json, 0.1f);
  json += ' ';
  append_json_float(json, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(json, "-0.25 0.1 -9999");
}

}  // namespace
}  // namespace tandem::server::openai
