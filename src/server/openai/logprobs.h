#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/request.h"
#include "text/tokenizer.h"

namespace tandem::server::openai {

/// The probabilities of tokens that belong to one chunk or answer.
struct LogprobTokens {
  std::vector<engine::GeneratedToken> tokens;
  std::vector<size_t> text_offsets;  ///< per token: characters of the answer before it
};

/// {"content":[{"token","logprob","bytes","top_logprobs":[{"token","logprob","bytes"}]}]}
void append_chat_logprobs(std::string& json, const LogprobTokens& logprobs,
                          const text::Tokenizer& tokenizer);

/// {"text_offset":[],"token_logprobs":[],"tokens":[],"top_logprobs":[{token: logprob}]}. A token
/// that is no text by itself is written "bytes:\xNN...", as OpenAI does, so that none is lost.
void append_completion_logprobs(std::string& json, const LogprobTokens& logprobs,
                                const text::Tokenizer& tokenizer);

}  // namespace tandem::server::openai
