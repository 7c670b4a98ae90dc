#include "server/openai/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "server/openai/json_text.h"

namespace tandem::server::openai {

namespace {

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = utf8_character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

/// {"token":...,"logprob":...,"bytes":[...]  without the closing brace.
void append_token(std::string& json, std::string_view bytes, float logprob) {
  json += "{\"token\":";
  append_json_string(json, bytes);
  json += ",\"logprob\":";
  append_json_float(json, logprob);
  json += ",\"bytes\":[";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) json += ',';
    append_json_integer(json, static_cast<unsigned char>(bytes[i]));
  }
  json += ']';
}

void append_token_name(std::string& json, std::string_view bytes) {
  if (is_utf8(bytes)) return append_json_string(json, bytes);
  std::string name = "bytes:";
  for (const char byte : bytes) {
    fmt::format_to(std::back_inserter(name), "\\x{:02x}", static_cast<unsigned char>(byte));
  }
  append_json_string(json, name);
}

void append_top(std::string& json, const engine::GeneratedToken& token,
                const text::Tokenizer& tokenizer) {
  // The chosen token is always listed, although it may not be among the most likely.
  std::vector<engine::TokenLogprob> listed = token.top;
  const bool chosen_listed = std::any_of(
      listed.begin(), listed.end(), [&](const auto& entry) { return entry.token == token.token; });
  if (!chosen_listed) listed.push_back({.token = token.token, .logprob = token.logprob});
  json += '{';
  for (size_t i = 0; i < listed.size(); ++i) {
    if (i > 0) json += ',';
    append_token_name(json, tokenizer.token_bytes(listed[i].token));
    json += ':';
    append_json_float(json, listed[i].logprob);
  }
  json += '}';
}

}  // namespace

void append_chat_logprobs(std::string& json, const LogprobTokens& logprobs,
                          const text::Tokenizer& tokenizer) {
  json += "{\"content\":[";
  for (size_t i = 0; i < logprobs.tokens.size(); ++i) {
    const engine::GeneratedToken& token = logprobs.tokens[i];
    if (i > 0) json += ',';
    append_token(json, tokenizer.token_bytes(token.token), token.logprob);
    json += ",\"top_logprobs\":[";
    for (size_t k = 0; k < token.top.size(); ++k) {
      if (k > 0) json += ',';
      append_token(json, tokenizer.token_bytes(token.top[k].token), token.top[k].logprob);
      json += '}';
    }
    json += "]}";
  }
  json += "]}";
}

void append_completion_logprobs(std::string& json, const LogprobTokens& logprobs,
                                const text::Tokenizer& tokenizer) {
  const auto list = [&](std::string_view name, const auto& append_item) {
    json += '"';
    json += name;
    json += "\":[";
    for (size_t i = 0; i < logprobs.tokens.size(); ++i) {
      if (i > 0) json += ',';
      append_item(i);
    }
    json += ']';
  };
  json += '{';
  list("text_offset", [&](size_t i) {
    append_json_integer(json, static_cast<int64_t>(logprobs.text_offsets[i]));
  });
  json += ',';
  list("token_logprobs", [&](size_t i) { append_json_float(json, logprobs.tokens[i].logprob); });
  json += ',';
  list("tokens",
       [&](size_t i) { append_token_name(json, tokenizer.token_bytes(logprobs.tokens[i].token)); });
  json += ',';
  list("top_logprobs", [&](size_t i) { append_top(json, logprobs.tokens[i], tokenizer); });
  json += '}';
}

}  // namespace tandem::server::openai
