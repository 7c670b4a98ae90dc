#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "apps/load.h"

namespace tandem::apps {

/// Tokens of a conversation, `messages` as in the OpenAI API, up to where the assistant answers.
/// What users wrote stays text, whatever it spells. kFailedPrecondition without a chat template.
Result<std::vector<TokenId>> encode_chat(const ModelFolder& folder, const nlohmann::json& messages,
                                         bool thinking);

}  // namespace tandem::apps
