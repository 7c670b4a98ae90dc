#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "server/openai/api_error.h"

namespace tandem::server::openai {

/// Keeps the order of keys, because chat templates print objects (tools) in the client's order.
using Json = nlohmann::ordered_json;

/// Bounds on what one document may make us build. They hold while parsing, so a hostile body
/// costs at most a small multiple of its bytes.
struct JsonLimits {
  int depth_max = 64;                  ///< arrays and objects inside each other
  size_t values_count_max = 1u << 20;  ///< numbers, strings, arrays, ... together
};

/// Parses a document strictly: UTF-8 only, no NaN, no comments, no key twice in one object
/// (clients and servers disagree on which one counts).
ApiResult<Json> parse_json(std::string_view text, const JsonLimits& limits);

}  // namespace tandem::server::openai
