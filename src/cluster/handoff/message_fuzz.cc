// Goal: no bytes that a broken peer sends crash, hang or grow what reads them; what is understood
// is within the limits and means the same when it is written again.
// Method: the input is decoded as it is. Start it with fuzz_corpus/message.
#include <algorithm>
#include <cstdlib>

#include "cluster/handoff/message.h"

namespace {

using namespace tandem;
using namespace tandem::cluster::handoff;

constexpr MessageLimits kLimits{.tokens_max = 64,
                                .vocabulary_size = 1000,
                                .pages_max = 16,
                                .ranks_max = 4,
                                .salt_bytes_max = 16,
                                .text_bytes_max = 32};

void expect(bool holds) {
  if (!holds) std::abort();
}

void expect_usable(const Start& start) {
  expect(start.tokens.size() <= 64 && start.pages.size() <= 16 && start.writes.size() <= 4);
  expect(start.first_position + size_t{1} < start.tokens.size());
  expect(!start.pages.empty() && !start.writes.empty() && start.cache_salt.size() <= 16);
  expect(std::ranges::all_of(start.tokens, [](TokenId id) { return id >= 0 && id < 1000; }));
  expect(std::ranges::all_of(start.writes, [](uint32_t count) { return count >= 1; }));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto message = decode(std::as_bytes(std::span(data, size)), kLimits);
  if (!message.ok()) return 0;
  if (const auto* start = std::get_if<Start>(&message->body)) expect_usable(*start);
  const std::vector<std::byte> bytes = encode(*message, kLimits);
  expect(std::ranges::equal(bytes, std::as_bytes(std::span(data, size))));
  return 0;
}
