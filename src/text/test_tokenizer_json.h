#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "text/utf8.h"

/// A small tokenizer.json for tests: 256 bytes, a few merges, two added tokens.
namespace tandem::text {

/// GPT-2's spelling of bytes, written down a second time so that tests do not trust the first.
inline std::string spelling_of(std::string_view bytes) {
  std::string spelling;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    char32_t letter = byte;
    if (byte <= 32) letter = 256u + byte;
    if (byte >= 127 && byte <= 160) letter = 256u + 33 + (byte - 127u);
    if (byte == 173) letter = 256u + 67;
    append_utf8(letter, spelling);
  }
  return spelling;
}

/// Byte b is token b. Tokens 256 to 260 are " t", "he", " the", "aa" and "aaaa"; 261 is the
/// special <|end|> and 262 is <tool>, which is not special.
inline nlohmann::json small_tokenizer_json() {
  nlohmann::json vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[spelling_of(std::string(1, static_cast<char>(byte)))] = byte;
  }
  int next = 256;
  for (const char* token : {" t", "he", " the", "aa", "aaaa"}) {
    vocabulary[spelling_of(token)] = next++;
  }
  const auto added = [](int id, const char* content, bool special) {
    return nlohmann::json{{"id", id},          {"content", content}, {"single_word", false},
                          {"lstrip", false},   {"rstrip", false},    {"normalized", false},
                          {"special", special}};
  };
  const char* regex =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  return {
      {"version", "1.0"},
      {"added_tokens", {added(261, "<|end|>", true), added(262, "<tool>", false)}},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"},
           {"pattern", {{"Regex", regex}}},
           {"behavior", "Isolated"},
           {"invert", false}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", vocabulary},
        {"merges", {"\u0120 t", "h e", "\u0120t he", "a a", "aa aa"}}}},
  };
}

}  // namespace tandem::text
