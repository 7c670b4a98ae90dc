// Goal: no bytes of a peer crash or grow what reads addresses, descriptors and messages, and what
// is understood means the same when it is written again.
// Method: every reader gets the whole input; what it accepts is encoded and must be the input.
// Start it with fuzz_corpus/wire.
#include <algorithm>
#include <cstdlib>

#include "transfer/wire.h"

namespace {

template <typename Value>
void expect_same(const tandem::Result<Value>& value, std::span<const std::byte> input) {
  if (!value.ok()) return;
  if (!std::ranges::equal(tandem::transfer::encode(*value), input)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span input(reinterpret_cast<const std::byte*>(data), size);
  expect_same(tandem::transfer::decode_address(input), input);
  expect_same(tandem::transfer::decode_region(input), input);
  expect_same(tandem::transfer::decode_message(input), input);
  return 0;
}
