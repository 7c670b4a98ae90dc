#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::model {

using Json = nlohmann::json;

/// What a document may cost at most. The defaults fit every config file; a limit is there because
/// the text comes from whoever made the checkpoint.
struct JsonLimits {
  int depth_max = 32;            ///< nested arrays and objects
  size_t values_max = 4u << 20;  ///< numbers, strings, arrays, ... in all
};

/// Parses a whole text as one JSON value and nothing else. Refuses what parsers disagree about: a
/// key that appears twice in an object, and a zero byte (which would end the text early).
Result<Json> parse_strict_json(std::string_view text, JsonLimits limits = {});

/// A value as it stands in the file, cut to a length that fits a line: for errors.
std::string json_excerpt(const Json& value);

}  // namespace tandem::model
