#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "engine/request.h"
#include "server/openai/api_error.h"
#include "text/chat_template.h"

namespace tandem::server::openai {

/// What a request is checked against, and what absent fields mean.
struct Rules {
  std::vector<std::string> model_names;  ///< never empty; the first one is the default
  uint32_t model_length_max = 0;         ///< prompt and answer together, in tokens
  TokenId vocabulary_size = 0;
  uint32_t n_max = 64;         ///< choices per prompt
  uint32_t choices_max = 256;  ///< prompts x n
  // The model's generation_config:
  float temperature = 1.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
};

/// What both generating endpoints share.
struct GenerationParams {
  std::string model;                ///< the name the client used
  engine::SamplingParams sampling;  ///< seed unset when `seeded` is false
  bool seeded = false;
  std::optional<uint32_t> tokens_max;  ///< nothing: the rest of the context
  uint32_t tokens_min = 0;
  std::vector<std::string> stops;
  std::vector<TokenId> stop_tokens;  ///< the client's; the model's own are added later
  bool ignore_eos = false;
  bool include_stop = false;
  bool skip_special = true;
  uint32_t n = 1;
  bool stream = false;
  bool include_usage = false;
  std::string cache_salt;
};

struct ChatRequest {
  GenerationParams params;
  text::ChatInput input;
};

/// Text, or ids as they are.
using PromptInput = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  GenerationParams params;
  std::vector<PromptInput> prompts;  ///< at least one
  bool echo = false;
};

/// Body of POST /tokenize: a prompt or a chat.
struct TokenizeRequest {
  std::variant<std::string, text::ChatInput> input;
  bool with_strings = false;  ///< return_token_strs
};

/// JSON body to struct. Pure; every fault of the client is a 4xx that names the field.
ApiResult<ChatRequest> parse_chat_request(std::string_view body, const Rules& rules);
ApiResult<CompletionRequest> parse_completion_request(std::string_view body, const Rules& rules);
ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const Rules& rules);
ApiResult<std::vector<TokenId>> parse_detokenize_request(std::string_view body, const Rules& rules);

}  // namespace tandem::server::openai
