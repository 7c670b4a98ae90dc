// Goal: no bytes that a broken peer sends crash, hang or grow what reads them; what is understood
// means the same when it is written again.
// Method: every reader gets the whole input; what it accepts is encoded and must be the input.
// Start it with fuzz_corpus/worker_message.
#include <cstdlib>

#include "cluster/wire/worker_message.h"

namespace {

using namespace tandem;
using namespace tandem::cluster;

constexpr WireLimits kLimits{
    .tokens_max = 64, .vocabulary_size = 1000, .list_max = 16, .text_bytes_max = 32};

void expect_same(const std::string& again, std::string_view input) {
  if (again != input) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (const auto message = decode_message(input, kLimits); message.ok()) {
    expect_same(encode(*message, kLimits), input);
  }
  if (const auto call = decode_call(input, kLimits); call.ok()) expect_same(encode(*call), input);
  if (const auto welcome = decode_welcome(input, kLimits); welcome.ok()) {
    expect_same(encode(*welcome), input);
  }
  return 0;
}
