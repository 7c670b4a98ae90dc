// Goal: spellings of byte-level tokens read back as their bytes.
// Method: all 256 bytes through a second writing of the alphabet; characters outside it.
#include "text/byte_alphabet.h"

#include <gtest/gtest.h>

#include "text/test_tokenizer_json.h"

namespace tandem::text {
namespace {

TEST(ByteAlphabet, ReadsEveryByte) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(bytes_of_spelling(spelling_of(all)), all);
  EXPECT_EQ(bytes_of_spelling("\u0120hello\u010A"), " hello\n");
  EXPECT_EQ(bytes_of_spelling(""), "");
}

TEST(ByteAlphabet, RefusesOtherCharacters) {
  EXPECT_EQ(bytes_of_spelling("a b"), std::nullopt);
  EXPECT_EQ(bytes_of_spelling("\u00AD"), std::nullopt) << "the soft hyphen is invisible";
  EXPECT_EQ(bytes_of_spelling("\u0144"), std::nullopt) << "one past the last letter";
  EXPECT_EQ(bytes_of_spelling("\u4E2D"), std::nullopt);
}

}  // namespace
}  // namespace tandem::text
