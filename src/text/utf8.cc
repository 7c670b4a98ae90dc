#include "text/utf8.h"

#include "base/check.h"

namespace tandem::text {
namespace {

// The bytes that may follow a lead byte. Only the second byte has a range of its own: it is what
// rules out overlong forms (E0, F0), surrogates (ED) and values past U+10FFFF (F4).
struct Lead {
  uint32_t bytes;
  uint8_t second_min;
  uint8_t second_max;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// Reads `text` up to its end or to an incomplete tail; returns the offset where it stopped.
size_t append_valid(std::string_view text, std::string& out) {
  size_t offset = 0;
  while (offset < text.size()) {
    const Utf8Step step = utf8_step(text.substr(offset));
    if (step.kind == Utf8Step::Kind::kIncomplete) break;
    if (step.kind == Utf8Step::Kind::kCharacter) {
      out.append(text, offset, step.bytes);
    } else {
      append_utf8(kReplacementCharacter, out);
    }
    offset += step.bytes;
  }
  return offset;
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  TANDEM_DCHECK(!text.empty());
  const auto byte_at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const Lead lead = lead_of(byte_at(0));
  if (lead.bytes == 1) return {Utf8Step::Kind::kCharacter, 1, byte_at(0)};
  if (lead.bytes == 0) return {Utf8Step::Kind::kInvalid, 1, kReplacementCharacter};

  // A lead byte of n bytes keeps its low 7 - n bits.
  char32_t code_point = byte_at(0) & (0x7Fu >> lead.bytes);
  uint8_t min = lead.second_min;
  uint8_t max = lead.second_max;
  for (uint32_t i = 1; i < lead.bytes; ++i) {
    if (i == text.size()) return {Utf8Step::Kind::kIncomplete, i, kReplacementCharacter};
    if (byte_at(i) < min || byte_at(i) > max) {
      return {Utf8Step::Kind::kInvalid, i, kReplacementCharacter};
    }
    code_point = (code_point << 6) | (byte_at(i) & 0x3Fu);
    min = 0x80;
    max = 0xBF;
  }
  return {Utf8Step::Kind::kCharacter, lead.bytes, code_point};
}

void append_utf8(char32_t code_point, std::string& text) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t offset = 0;
  while (offset < text.size()) {
    const Utf8Step step = utf8_step(text.substr(offset));
    if (step.kind != Utf8Step::Kind::kCharacter) break;
    offset += step.bytes;
  }
  return offset;
}

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (append_valid(text, out) < text.size()) append_utf8(kReplacementCharacter, out);
  return out;
}

std::string take_valid_utf8(std::string& pending) {
  std::string out;
  pending.erase(0, append_valid(pending, out));
  return out;
}

}  // namespace tandem::text
