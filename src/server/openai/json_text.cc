#include "server/openai/json_text.h"

#include <array>
#include <charconv>
#include <cmath>

namespace tandem::server::openai {

namespace {

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

void append_escaped(std::string& json, char byte) {
  switch (byte) {
    case '"':
      json += "\\\"";
      return;
    case '\\':
      json += "\\\\";
      return;
    case '\n':
      json += "\\n";
      return;
    case '\r':
      json += "\\r";
      return;
    case '\t':
      json += "\\t";
      return;
    default: {
      constexpr char kHex[] = "0123456789abcdef";
      json += "\\u00";
      json += kHex[static_cast<unsigned char>(byte) >> 4];
      json += kHex[byte & 0xF];
    }
  }
}

bool needs_escape(char byte) {
  return static_cast<unsigned char>(byte) < 0x20 || byte == '"' || byte == '\\' || byte == 0x7F;
}

template <typename Number>
void append_number(std::string& json, Number value) {
  std::array<char, 32> digits;
  const auto written = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  json.append(digits.data(), written.ptr);
}

}  // namespace

size_t utf8_character_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xC2 && first <= 0xDF   ? 2
                       : first >= 0xE0 && first <= 0xEF ? 3
                       : first >= 0xF0 && first <= 0xF4 ? 4
                                                        : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if (!is_continuation(text[i])) return 0;
  }
  // The first continuation byte rules out overlong forms, surrogates and what is past U+10FFFF.
  const auto second = static_cast<unsigned char>(text[1]);
  if (first == 0xE0 && second < 0xA0) return 0;
  if (first == 0xED && second > 0x9F) return 0;
  if (first == 0xF0 && second < 0x90) return 0;
  if (first == 0xF4 && second > 0x8F) return 0;
  return bytes;
}

void append_json_string(std::string& json, std::string_view text) {
  json += '"';
  size_t plain_begin = 0;  // [plain_begin, i) is copied at once
  size_t i = 0;
  const auto flush = [&] { json.append(text, plain_begin, i - plain_begin); };
  while (i < text.size()) {
    if (needs_escape(text[i])) {
      flush();
      append_escaped(json, text[i]);
      plain_begin = ++i;
      continue;
    }
    const size_t bytes = utf8_character_bytes(text.substr(i));
    if (bytes == 0) {
      flush();
      json += "\xEF\xBF\xBD";
      plain_begin = ++i;
      continue;
    }
    i += bytes;
  }
  flush();
  json += '"';
}

void append_json_float(std::string& json, float value) {
  append_number(json, std::isfinite(value) ? value : -9999.0f);
}

void append_json_integer(std::string& json, int64_t value) {
  append_number(json, value);
}

}  // namespace tandem::server::openai
