#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace tandem::text {
namespace {

// The visible characters of Latin-1 spell themselves.
constexpr bool is_visible(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

// The other 68 bytes are spelled, in order, by the characters from U+0100 on.
constexpr int kLettersCount = 256 + 68;

constexpr std::array<int16_t, kLettersCount> kByteOfLetter = [] {
  std::array<int16_t, kLettersCount> byte_of{};
  byte_of.fill(-1);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    byte_of[is_visible(byte) ? byte : next++] = static_cast<int16_t>(byte);
  }
  return byte_of;
}();
static_assert(kByteOfLetter[kLettersCount - 1] == 173, "the soft hyphen is the last of the 68");

}  // namespace

std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  bytes.reserve(spelling.size());
  for (size_t offset = 0; offset < spelling.size();) {
    const Utf8Step step = utf8_step(spelling.substr(offset));
    if (step.code_point >= kLettersCount || kByteOfLetter[step.code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kByteOfLetter[step.code_point]));
    offset += step.bytes;
  }
  return bytes;
}

}  // namespace tandem::text
