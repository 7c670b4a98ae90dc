#include "server/openai/api_error.h"

#include "server/openai/json_text.h"

namespace tandem::server::openai {

namespace {

constexpr int kRetryAfterS = 1;

int http_status(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kUnimplemented:
      return 400;
    case Code::kNotFound:
      return 404;
    case Code::kResourceExhausted:
      return 429;
    case Code::kFailedPrecondition:
    case Code::kUnavailable:
      return 503;
    case Code::kDeadlineExceeded:
      return 504;
    case Code::kCancelled:
    case Code::kDataLoss:
    case Code::kInternal:
      return 500;
  }
  return 500;
}

}  // namespace

const char* ApiError::type() const {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 408:
    case 504:
      return "timeout_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "server_overloaded";
    case 501:  // the client asked for what this server does not do
      return "invalid_request_error";
    default:
      return status < 500 ? "invalid_request_error" : "internal_error";
  }
}

ApiError invalid_field(std::string param, std::string code, std::string message) {
  return {.status = 400,
          .message = std::move(message),
          .param = std::move(param),
          .code = std::move(code)};
}

ApiError api_error(const Error& error) {
  ApiError answer{.status = http_status(error.code), .message = error.what};
  // Every limit that a request can meet is room that others take: in a queue, or of processes.
  answer.code = answer.status == 429 ? kQueueFull : code_name(error.code);
  if (answer.status == 429 || answer.status == 503) answer.retry_after_s = kRetryAfterS;
  return answer;
}

std::string to_json(const ApiError& error) {
  std::string json = "{\"error\":{\"message\":";
  append_json_string(json, error.message);
  json += ",\"type\":";
  append_json_string(json, error.type());
  json += ",\"param\":";
  if (error.param.empty()) {
    json += "null";
  } else {
    append_json_string(json, error.param);
  }
  json += ",\"code\":";
  append_json_string(json, error.code);
  json += "}}";
  return json;
}

}  // namespace tandem::server::openai
