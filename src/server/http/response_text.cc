#include "server/http/response_text.h"

#include <fmt/format.h>

#include <iterator>

namespace tandem::server::http {

namespace {

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Status";
  }
}

void append_head(std::string& output, int status, std::string_view content_type,
                 const Framing& framing) {
  fmt::format_to(std::back_inserter(output),
                 "HTTP/1.1 {} {}\r\nServer: tandem\r\nContent-Type: {}\r\nX-Request-Id: {}\r\n"
                 "Connection: {}\r\n",
                 status, reason_of(status), content_type, framing.request_id,
                 framing.keep_alive ? "keep-alive" : "close");
}

}  // namespace

void append_response(std::string& output, const Response& response, const Framing& framing) {
  append_head(output, response.status, response.content_type, framing);
  for (const Header& header : response.headers) {
    fmt::format_to(std::back_inserter(output), "{}: {}\r\n", header.name, header.value);
  }
  fmt::format_to(std::back_inserter(output), "Content-Length: {}\r\n\r\n", response.body.size());
  if (!framing.body_omitted) output += response.body;
}

void append_stream_head(std::string& output, const Framing& framing) {
  append_head(output, 200, "text/event-stream; charset=utf-8", framing);
  // Without the last line some proxies hold a stream back until it is complete.
  output += "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n";
  if (framing.chunked) output += "Transfer-Encoding: chunked\r\n";
  output += "\r\n";
}

void append_chunk(std::string& output, std::string_view bytes, const Framing& framing) {
  if (bytes.empty() || framing.body_omitted) return;
  if (!framing.chunked) {
    output += bytes;
    return;
  }
  fmt::format_to(std::back_inserter(output), "{:x}\r\n", bytes.size());
  output += bytes;
  output += "\r\n";
}

void append_stream_end(std::string& output, const Framing& framing) {
  if (framing.chunked && !framing.body_omitted) output += "0\r\n\r\n";
}

}  // namespace tandem::server::http
