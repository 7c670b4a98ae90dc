#pragma once

#include <string>
#include <string_view>

#include "server/http/http.h"

namespace tandem::server::http {

/// What of the request shapes its answer's framing.
struct Framing {
  std::string_view request_id;
  bool keep_alive = true;
  bool chunked = true;        ///< streams only; false: the end of the connection ends the body
  bool body_omitted = false;  ///< HEAD
};

/// The bytes of a whole answer.
void append_response(std::string& output, const Response& response, const Framing& framing);

/// The head of an event stream.
void append_stream_head(std::string& output, const Framing& framing);

/// One chunk of a stream (nothing for no bytes: an empty chunk would end it).
void append_chunk(std::string& output, std::string_view bytes, const Framing& framing);

/// The end of a stream.
void append_stream_end(std::string& output, const Framing& framing);

}  // namespace tandem::server::http
