#pragma once

#include <memory>
#include <string_view>

#include "text/chat_template.h"

namespace tandem::text {

/// True for the template of the hybrid Qwen3 models (the one in models/tiny-moe), whatever its
/// line ends.
bool is_qwen3_template(std::string_view source);

/// Renders what that template renders, byte for byte and span for span, without a process. Where
/// the template would fail on a value of the wrong type, or print Python's spelling of one, this
/// refuses with the place of the value.
std::unique_ptr<ChatTemplate> make_native_qwen3_template(size_t output_bytes_max);

}  // namespace tandem::text
