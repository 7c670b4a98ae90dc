#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "server/http/http.h"

namespace tandem::server::http {

/// Reads one HTTP/1.x request from bytes as they arrive. Knows no socket, so that a fuzzer can
/// drive it.
class RequestParser {
 public:
  struct Limits {
    size_t header_bytes_max = 16u << 10;
    size_t body_bytes_max = 8u << 20;
  };
  explicit RequestParser(Limits limits);
  ~RequestParser();
  RequestParser(RequestParser&&) noexcept;

  /// Reads from the front of `bytes` and returns how many were used. What is left must be given
  /// again in front of what arrives later. After done() or a refusal nothing more is used.
  size_t feed(std::string_view bytes);

  bool header_done() const;
  bool done() const;
  /// Why the request cannot be served. The connection is of no further use then.
  const std::optional<Refusal>& refusal() const;
  /// The client waits for "100 Continue" before it sends the body.
  bool expects_continue() const;
  /// The request, when done(). Call once.
  Request take();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Decodes %XX; a broken escape stays as it is.
std::string percent_decode(std::string_view text);

/// The client's id when it is short and printable, so that it is safe in headers and logs.
bool is_usable_request_id(std::string_view id);

}  // namespace tandem::server::http
