#include "server/access_log.h"

#include <fmt/format.h>

#include <string_view>

#include "server/openai/json_text.h"

namespace tandem::server {

namespace {

constexpr size_t kPathBytesMax = 256;
constexpr int kClientClosedRequest = 499;

}  // namespace

std::string access_line(const http::Answered& answered) {
  std::string path;
  openai::append_json_string(path, std::string_view(answered.path).substr(0, kPathBytesMax));
  const std::string fields = answered.exchange == nullptr ? "" : answered.exchange->log_fields();
  return fmt::format(
      "http_request method={} path={} status={}{}{} duration_ms={} request_id={}", answered.method,
      path, answered.client_gone ? kClientClosedRequest : answered.status,
      fields.empty() ? "" : " ", fields, answered.duration.count(), answered.request_id);
}

}  // namespace tandem::server
