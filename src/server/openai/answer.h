#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/api_error.h"
#include "server/openai/prepare.h"

namespace tandem::server::openai {

/// What every part of one answer repeats.
struct AnswerHead {
  Endpoint endpoint;
  std::string id;       ///< "chatcmpl-..." or "cmpl-..."
  int64_t created = 0;  ///< seconds since 1970
  std::string model;
};

/// A piece of a choice, or a whole one.
struct ChoicePart {
  uint32_t index = 0;
  std::string_view text;
  std::string_view logprobs_json;       ///< empty: null
  const char* finish_reason = nullptr;  ///< nullptr: null
  bool opens = false;                   ///< chat chunks: the first one names the role
};

struct Usage {
  uint64_t prompt_tokens = 0;
  uint64_t completion_tokens = 0;
  uint64_t cached_tokens = 0;
};

/// One event of a stream with one choice's piece. `with_usage` writes "usage":null, as OpenAI does
/// when a usage chunk will follow.
void append_chunk(std::string& output, const AnswerHead& head, const ChoicePart& part,
                  bool with_usage);
/// The event without choices that carries the usage.
void append_usage_chunk(std::string& output, const AnswerHead& head, const Usage& usage);
/// An error in the middle of a stream.
void append_error_event(std::string& output, const ApiError& error);
/// The event that ends every stream.
void append_done(std::string& output);

/// A whole answer.
std::string answer_json(const AnswerHead& head, const std::vector<ChoicePart>& choices,
                        const Usage& usage);

}  // namespace tandem::server::openai
