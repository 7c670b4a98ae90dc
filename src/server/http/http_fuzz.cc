// Goal: no bytes make the HTTP reader crash, hang, pass its limits or depend on how they are cut.
// Method: libFuzzer; the first byte picks the size of the pieces in which the rest arrives. The
// same bytes in one piece must give the same result.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/http/request_parser.h"

using namespace tandem;
using namespace tandem::server::http;

namespace {

constexpr RequestParser::Limits kLimits{.header_bytes_max = 512, .body_bytes_max = 256};

struct Outcome {
  bool done = false;
  bool refused = false;
  Request request;
};

Outcome read_in_pieces(std::string_view bytes, size_t piece_bytes) {
  RequestParser parser(kLimits);
  std::string waiting;
  for (size_t at = 0; at < bytes.size() && !parser.done() && !parser.refusal(); at += piece_bytes) {
    waiting += bytes.substr(at, piece_bytes);
    const size_t used = parser.feed(waiting);
    TANDEM_CHECK(used <= waiting.size());
    waiting.erase(0, used);
    TANDEM_CHECK(waiting.size() <= kLimits.header_bytes_max + piece_bytes || parser.refusal() ||
                 parser.done());
  }
  Outcome outcome{.done = parser.done(), .refused = parser.refusal().has_value(), .request = {}};
  if (outcome.done) outcome.request = parser.take();
  TANDEM_CHECK(outcome.request.body.size() <= kLimits.body_bytes_max);
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome pieces = read_in_pieces(bytes, 1 + data[0] % 32);
  const Outcome whole = read_in_pieces(bytes, bytes.size() + 1);
  if (pieces.done && whole.done) {
    TANDEM_CHECK(pieces.request.path == whole.request.path);
    TANDEM_CHECK(pieces.request.body == whole.request.body);
  }
  return 0;
}
