#pragma once

#include <string>
#include <utility>
#include <variant>

#include "base/result.h"

namespace tandem::server::openai {

/// What a client is told when a request fails, in OpenAI's terms.
struct ApiError {
  int status = 500;          ///< HTTP status
  std::string message;       ///< what, where and how to fix it
  std::string param;         ///< the field at fault, as "messages[2].content"; empty: null
  std::string code;          ///< a slug that programs can compare: "model_not_found"
  int retry_after_s = 0;     ///< with 429 and 503: when to try again; 0: no such header
  const char* type() const;  ///< OpenAI's error class, from the status
};

/// The code of every 429: there is no room now, and the same request may succeed later.
inline constexpr const char* kQueueFull = "queue_full";

/// A value, or what to tell the client.
template <typename T>
using ApiResult = std::variant<T, ApiError>;

/// A 400 about one field.
ApiError invalid_field(std::string param, std::string code, std::string message);

/// Maps an engine's or the template's Error. Defects stay vague towards the client.
ApiError api_error(const Error& error);

/// {"error":{"message":...,"type":...,"param":...,"code":...}}
std::string to_json(const ApiError& error);

}  // namespace tandem::server::openai
