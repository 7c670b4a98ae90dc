// Goal: JSON is read and written as Python's json module does it.
// Method: texts with the output of json.dumps(json.loads(text), ensure_ascii=False); the random
// values of chat_template_parity_test.cc cover numbers more widely.
#include "text/python_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tandem::text {
namespace {

using ::testing::HasSubstr;

std::string round_trip(const std::string& text) {
  const auto value = parse_json(text, "text");
  return value.ok() ? dump_json(*value) : value.error().what;
}

TEST(PythonJson, WritesAsPython) {
  EXPECT_EQ(round_trip(R"({"b":[1,2,{}],"a":[],"c":null,"d":true})"),
            R"({"b": [1, 2, {}], "a": [], "c": null, "d": true})");
  EXPECT_EQ(round_trip(R"("\u00e9\/\"\\\n\u0001\u007f\ud83d\ude42")"),
            "\"é/\\\"\\\\\\n\\u0001\x7f🙂\"");
}

TEST(PythonJson, KeepsTheFirstPlaceAndTheLastValueOfAKey) {
  EXPECT_EQ(round_trip(R"({"a": 1, "b": 2, "a": {"c": 3}})"), R"({"a": {"c": 3}, "b": 2})");
}

TEST(PythonJson, KeepsIntegersOfAnySize) {
  for (const std::string digits : {"0", "-9223372036854775808", "18446744073709551615",
                                   "18446744073709551616", "-100000000000000000000000000"}) {
    EXPECT_EQ(round_trip(digits), digits);
  }
}

TEST(PythonJson, SpellsFloatsAsRepr) {
  EXPECT_EQ(python_float(0.0), "0.0");
  EXPECT_EQ(python_float(-0.0), "-0.0");
  EXPECT_EQ(python_float(100.0), "100.0");
  EXPECT_EQ(python_float(0.1), "0.1");
  EXPECT_EQ(python_float(1e-4), "0.0001");
  EXPECT_EQ(python_float(1.5e-5), "1.5e-05");
  EXPECT_EQ(python_float(9999999999999998.0), "9999999999999998.0");
  EXPECT_EQ(python_float(1e16), "1e+16");
  EXPECT_EQ(python_float(-1.25e300), "-1.25e+300");
  EXPECT_EQ(python_float(5e-324), "5e-324");
}

TEST(PythonJson, RefusesWhatItCannotKeep) {
  for (const char* text : {"", "{", "[1,]", "nan", "1e999", "\"\\ud800\"", "\"\xff\"", "1 2"}) {
    EXPECT_THAT(round_trip(text), HasSubstr("text is not usable JSON: ")) << text;
  }
  const std::string deepest = std::string(kJsonDepthMax, '[') + std::string(kJsonDepthMax, ']');
  EXPECT_EQ(round_trip(deepest), deepest);
  EXPECT_THAT(round_trip("[" + deepest + "]"), HasSubstr("nested deeper than 128 levels"));
}

TEST(PythonJson, TakesManyKeysInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 300'000; ++i) text += "\"k" + std::to_string(i) + "\":1,";
  text += "\"k0\":2}";
  const auto value = parse_json(text, "text");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->size(), 300'000u);
  EXPECT_EQ(value->begin().value(), 2);
}

}  // namespace
}  // namespace tandem::text
