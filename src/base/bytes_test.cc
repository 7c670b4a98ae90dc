// Goal: fields come out as they went in, and bytes that are no such fields end the reader: it stays
// not ok and gives nothing more. Method: cases by hand, on bytes written out.
#include "base/bytes.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

using Writer = ByteWriter<std::string>;

TEST(Bytes, FieldsAreLittleEndianAndCounted) {
  Writer writer;
  writer.put<uint16_t>(0x0201);
  writer.put_text("ab");
  writer.put_list(std::vector<int>{7, 8},
                  [&](int item) { writer.put(static_cast<uint8_t>(item)); });
  writer.put_float(1.0f);
  EXPECT_EQ(writer.take(), std::string("\1\2\2\0\0\0ab\2\0\0\0\7\10\0\0\x80\x3f", 18));
  ByteWriter<std::vector<std::byte>> other;
  other.put<uint8_t>(255);
  EXPECT_EQ(other.take(), std::vector<std::byte>{std::byte{255}});
}

TEST(Bytes, FieldsComeOutAsTheyWentIn) {
  enum class Colour : uint8_t { kRed, kGreen };
  Writer writer;
  writer.put(0xfedc'ba98'7654'3210u);
  writer.put(true);
  writer.put_enum(Colour::kGreen);
  writer.put_text(std::string_view("\0x", 2));
  writer.put_list(std::vector<uint32_t>{1, 2, 3}, [&](uint32_t item) { writer.put(item); });
  const std::string bytes = writer.take();
  ByteReader reader(bytes);
  EXPECT_EQ(reader.take<uint64_t>(), 0xfedc'ba98'7654'3210u);
  EXPECT_TRUE(reader.take_flag());
  EXPECT_EQ(reader.take_enum(Colour::kRed, Colour::kGreen), Colour::kGreen);
  EXPECT_EQ(reader.take_text(2), std::string("\0x", 2));
  EXPECT_FALSE(reader.is_at_end());
  EXPECT_EQ(reader.take_list(3, 4, [&] { return reader.take<uint32_t>(); }),
            (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_TRUE(reader.is_at_end());
}

TEST(Bytes, AfterTheEndOrARefusalNothingMoreIsRead) {
  ByteReader cut(std::string_view("\1\2\3", 3));
  EXPECT_EQ(cut.take<uint32_t>(), 0u);
  EXPECT_EQ(cut.take<uint8_t>(), 0u);  // though there are bytes
  EXPECT_FALSE(cut.is_at_end());
  ByteReader refused(std::string_view("\1\2\3", 3));
  EXPECT_EQ(refused.take<uint8_t>(), 1u);
  EXPECT_FALSE(refused.require(false));
  EXPECT_FALSE(refused.require(true));
  EXPECT_EQ(refused.take<uint8_t>(), 0u);
  EXPECT_TRUE(refused.rest().empty());
  EXPECT_FALSE(refused.is_at_end());
}

TEST(Bytes, ValuesBeyondTheirLimitsAreRefused) {
  enum class Colour : uint8_t { kRed = 1, kGreen };
  for (const char value : {0, 3}) {
    ByteReader reader(std::string_view(&value, 1));
    EXPECT_EQ(reader.take_enum(Colour::kRed, Colour::kGreen), Colour::kRed);
    EXPECT_FALSE(reader.ok());
  }
  ByteReader flag(std::string_view("\2", 1));
  EXPECT_FALSE(flag.take_flag());
  EXPECT_FALSE(flag.ok());
  ByteReader text(std::string_view("\2\0\0\0ab", 6));
  EXPECT_EQ(text.take_text(1), "");
  EXPECT_FALSE(text.ok());
}

TEST(Bytes, AListIsNoLongerThanItsBytes) {
  // 4 billion items are said to follow in 4 bytes.
  ByteReader reader(
      std::string_view("\xff\xff\xff\xff"
                       "abcd",
                       8));
  const auto items = reader.take_list(UINT32_MAX, 1, [&] { return reader.take<uint8_t>(); });
  EXPECT_EQ(items.capacity(), 0u);
  EXPECT_FALSE(reader.ok());
  ByteReader many(std::string_view("\2\0\0\0ab", 6));
  EXPECT_TRUE(many.take_list(1, 1, [&] { return many.take<uint8_t>(); }).empty());
  EXPECT_FALSE(many.ok());
}

}  // namespace
}  // namespace tandem
