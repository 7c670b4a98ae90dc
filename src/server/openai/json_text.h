#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::server::openai {

/// Appends `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD, so the
/// result is always valid JSON, whatever a client or a model wrote.
void append_json_string(std::string& json, std::string_view text);

/// Appends the shortest decimal that reads back as the same float. JSON has no infinity: a
/// logarithm of zero is written as -9999, as OpenAI does.
void append_json_float(std::string& json, float value);

void append_json_integer(std::string& json, int64_t value);

/// Length of the UTF-8 character that starts `text`, or 0 when it starts with none.
size_t utf8_character_bytes(std::string_view text);

}  // namespace tandem::server::openai
