#include "server/http/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http.hpp>

namespace tandem::server::http {

namespace beast_http = boost::beast::http;

namespace {

constexpr size_t kRequestIdBytesMax = 128;

/// Beast 1.81 asserts that it is given so many bytes when it looks at an empty body's last chunk a
/// second time, and a client decides how its bytes are cut. The shortest end of a chunked body,
/// "0\r\n\r\n", is no shorter, so waiting for it never waits in vain.
constexpr size_t kChunkBytesMin = 5;

int hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

/// "/path?query" or "http://host/path?query" -> "/path".
std::string_view path_of(std::string_view target) {
  if (const size_t scheme = target.find("://"); scheme != target.npos && target[0] != '/') {
    const size_t path = target.find('/', scheme + 3);
    target = path == target.npos ? "/" : target.substr(path);
  }
  return target.substr(0, std::min(target.find('?'), target.find('#')));
}

Refusal refusal_of(const boost::beast::error_code& error, const RequestParser::Limits& limits) {
  if (error == beast_http::error::body_limit) {
    return {.status = 413,
            .code = "body_too_large",
            .message =
                fmt::format("The request body may have at most {} bytes.", limits.body_bytes_max)};
  }
  if (error == beast_http::error::header_limit) {
    return {.status = 431,
            .code = "header_too_large",
            .message = fmt::format("The request line and headers may have at most {} bytes.",
                                   limits.header_bytes_max)};
  }
  return {.status = 400,
          .code = "bad_http",
          .message = fmt::format("The request is not valid HTTP/1.1: {}.", error.message())};
}

}  // namespace

struct RequestParser::Impl {
  explicit Impl(Limits limits) : limits(limits) {
    parser.header_limit(static_cast<uint32_t>(limits.header_bytes_max));
    parser.body_limit(limits.body_bytes_max);
    parser.eager(true);
  }

  void check_header() {
    check_host();
    if (!refusal) check_coding();
    if (!refusal) check_expectation();
  }

  /// RFC 9112, section 3.2. Two would let a proxy in front read another request than we do.
  void check_host() {
    const size_t count = parser.get().count(beast_http::field::host);
    if (count == 1 || (count == 0 && parser.get().version() < 11)) return;
    const std::string found = count == 0 ? "no Host header" : fmt::format("{} Host headers", count);
    refusal = {.status = 400,
               .code = "bad_http",
               .message = fmt::format("The request has {}, but must have exactly one.", found)};
  }

  /// Beast accepts any list of codings that ends in "chunked"; we decode no other.
  void check_coding() {
    const auto coding = parser.get().find(beast_http::field::transfer_encoding);
    if (coding != parser.get().end() &&
        !boost::beast::iequals(coding->value(), boost::beast::string_view("chunked"))) {
      refusal = {.status = 501,
                 .code = "unsupported",
                 .message = "Of the transfer encodings only \"chunked\" is supported."};
      return;
    }
    const auto content = parser.get().find(beast_http::field::content_encoding);
    if (content != parser.get().end() &&
        !boost::beast::iequals(content->value(), boost::beast::string_view("identity"))) {
      refusal = {.status = 415,
                 .code = "unsupported",
                 .message = "The request has a Content-Encoding; send the body as plain JSON."};
    }
  }

  /// RFC 9110, section 10.1.1: there is one expectation, and HTTP/1.0 has none.
  void check_expectation() {
    const auto expect = parser.get().find(beast_http::field::expect);
    if (expect == parser.get().end() || parser.get().version() < 11) return;
    if (boost::beast::iequals(expect->value(), boost::beast::string_view("100-continue"))) return;
    refusal = {
        .status = 417,
        .code = "unsupported",
        .message = "Of the expectations only \"100-continue\" can be met; leave out Expect."};
  }

  bool in_chunked_body() const { return parser.is_header_done() && parser.chunked(); }

  const Limits limits;
  beast_http::request_parser<beast_http::string_body> parser;
  std::optional<Refusal> refusal;
  bool header_checked = false;
};

RequestParser::RequestParser(Limits limits) : impl_(std::make_unique<Impl>(limits)) {}
RequestParser::~RequestParser() = default;
RequestParser::RequestParser(RequestParser&&) noexcept = default;

size_t RequestParser::feed(std::string_view bytes) {
  size_t used = 0;
  while (used < bytes.size() && !done() && !impl_->refusal) {
    if (impl_->in_chunked_body() && bytes.size() - used < kChunkBytesMin) break;
    boost::beast::error_code error;
    const size_t taken =
        impl_->parser.put(boost::asio::buffer(bytes.data() + used, bytes.size() - used), error);
    used += taken;
    if (error == beast_http::error::need_more) {
      // Beast bounds heads and bodies, but neither chunk extensions nor trailers.
      if (bytes.size() - used > impl_->limits.header_bytes_max) {
        impl_->refusal = refusal_of(beast_http::error::header_limit, impl_->limits);
      }
    } else if (error) {
      impl_->refusal = refusal_of(error, impl_->limits);
    } else if (header_done() && !impl_->header_checked) {
      impl_->header_checked = true;
      impl_->check_header();
    }
    if (error || taken == 0) break;
  }
  return used;
}

bool RequestParser::header_done() const {
  return impl_->parser.is_header_done();
}

bool RequestParser::done() const {
  return impl_->parser.is_done() && !impl_->refusal;
}

const std::optional<Refusal>& RequestParser::refusal() const {
  return impl_->refusal;
}

bool RequestParser::expects_continue() const {
  return header_done() && boost::beast::iequals(impl_->parser.get()[beast_http::field::expect],
                                                boost::beast::string_view("100-continue"));
}

Request RequestParser::take() {
  auto message = impl_->parser.release();
  Request request;
  const std::string_view method(message.method_string().data(), message.method_string().size());
  request.body_omitted = method == "HEAD";
  request.method = request.body_omitted ? "GET" : method;
  const std::string_view target(message.target().data(), message.target().size());
  request.path = percent_decode(path_of(target));
  const auto id = message["X-Request-Id"];
  if (is_usable_request_id({id.data(), id.size()})) request.request_id.assign(id.data(), id.size());
  request.keep_alive = message.keep_alive();
  request.chunked_answers = message.version() >= 11;
  request.body = std::move(message.body());
  return request;
}

std::string percent_decode(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
        hex_digit(text[i + 2]) >= 0) {
      decoded += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

bool is_usable_request_id(std::string_view id) {
  return !id.empty() && id.size() <= kRequestIdBytesMax &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c < 0x7F; });
}

}  // namespace tandem::server::http
