#pragma once

#include <string>

#include "server/http/http.h"

namespace tandem::server {

/// What of the requests is logged.
enum class AccessLog {
  kNone,
  kRequests,  ///< all but probes: what monitors ask every few seconds
  kAll,
};

/// The line of one answered request. Nothing of a body is in it; what the client chose (its path
/// and its request id) cannot break the line.
///
///     http_request method=POST path="/v1/completions" status=200 prompt_tokens=6
///     completion_tokens=16 duration_ms=41 request_id=5e...-7          (in one line)
///
/// A client that left before its answer was complete has status 499.
std::string access_line(const http::Answered& answered);

}  // namespace tandem::server
