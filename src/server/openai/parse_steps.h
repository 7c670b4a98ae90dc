#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/openai/fields.h"
#include "server/openai/request.h"

namespace tandem::server::openai {

/// Most likely tokens that a client may ask to see per token; the engine's bound, and OpenAI's.
inline constexpr int64_t kTopLogprobsMax = 20;

/// Steps that the parsers of several endpoints share. Each reports faults to `fields`.

/// Parses a body that must be one JSON object.
ApiResult<Json> parse_object(std::string_view body);

/// The model's name, checked against the served ones (404 otherwise).
std::string read_model(Fields& fields, const Rules& rules);

/// All fields of GenerationParams except logprobs, which the two endpoints spell differently.
GenerationParams read_generation_params(Fields& fields, const Rules& rules);

/// messages, tools and the template's variables.
text::ChatInput read_chat_input(Fields& fields);

/// An array of token ids of the vocabulary.
std::vector<TokenId> read_token_ids(Fields& fields, const Json& array, const std::string& param,
                                    const Rules& rules);

/// Fails when a field asks for something this server does not do, instead of answering as if it
/// had been done.
void refuse_unsupported(Fields& fields);

}  // namespace tandem::server::openai
