#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::text {

/// JSON as Python's json module reads and writes it, because a template's `tojson` is json.dumps
/// and the model was trained on its spelling. Keeps the order of keys; of a repeated key the last
/// value counts, at the place of the first. An integer beyond 64 bits keeps its digits: it is held
/// as the binary value of its spelling.
using Json = nlohmann::ordered_json;

/// Parses a client's JSON text. `where` names it in errors. Nesting is at most kJsonDepthMax, so
/// that no recursion over the value can exhaust a stack.
Result<Json> parse_json(std::string_view text, std::string_view where);
inline constexpr int kJsonDepthMax = 128;

/// json.dumps(value, ensure_ascii=False).
std::string dump_json(const Json& value);

/// repr(value) of a finite double.
std::string python_float(double value);

}  // namespace tandem::text
