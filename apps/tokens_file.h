#pragma once

#include <filesystem>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace tandem::apps {

/// Reads {"prompts": [[token ids], ...]}. Ids are checked to be integers of 32 bits; whether a
/// model has them is for those who run it.
Result<std::vector<std::vector<TokenId>>> read_tokens_file(const std::filesystem::path& path);

}  // namespace tandem::apps
