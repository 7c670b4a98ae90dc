#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/openai/request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem::server::openai {

enum class Endpoint { kChat, kCompletion };

struct PreparedPrompt {
  std::vector<TokenId> tokens;  ///< [1, model_length_max)
  std::string echo;             ///< text in front of the answer
};

/// A request in the engine's terms: every prompt is tokens and fits the model.
struct Prepared {
  GenerationParams params;
  std::vector<PreparedPrompt> prompts;
};

/// What bodies are turned into requests with. Everything is thread-safe.
struct TextServices {
  const Rules& rules;
  const text::Tokenizer& tokenizer;
  text::ChatTemplate* chat_template;  ///< nullptr: the model has none
};

/// Body to Prepared: parses, renders the chat template, tokenizes, checks lengths. Slow for large
/// bodies; runs on a worker.
ApiResult<Prepared> prepare(Endpoint endpoint, std::string_view body, const TextServices& services);

/// Bodies of POST /tokenize and /detokenize to the JSON of their answers.
ApiResult<std::string> tokenize(std::string_view body, const TextServices& services);
ApiResult<std::string> detokenize(std::string_view body, const TextServices& services);

}  // namespace tandem::server::openai
