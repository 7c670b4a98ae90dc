// Goal: no order of calls and faults makes engines differ from the model of transfer_exercise.h.
// Method: each byte is one of its decisions; large ones take two.
#include <cstddef>
#include <cstdint>

#include "transfer/testing/transfer_exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  size_t at = 0;
  const auto byte = [&]() -> uint32_t { return at < size ? data[at++] : 0; };
  tandem::transfer::TransferExercise exercise([&](uint32_t limit) -> uint32_t {
    return (limit > 256 ? byte() << 8 | byte() : byte()) % limit;
  });
  while (at < size) exercise.step();
  exercise.finish_all();
  return 0;
}
