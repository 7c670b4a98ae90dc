// Goal: no file crashes, hangs or overflows the safetensors header parser, and every tensor it
// accepts lies inside the file.
// Method: the input is a whole file; so that most inputs pass the length prefix, a first byte with
// its lowest bit set makes the rest the header text of a file without a prefix of its own. Start it
// with fuzz_corpus/safetensors.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "model/safetensors.h"

namespace {

void parse(std::span<const std::byte> file) {
  const auto header = tandem::model::parse_safetensors_header(file);
  if (!header.ok()) {
    if (header.error().what.empty() || header.error().what.size() > 1000) std::abort();
    return;
  }
  for (const auto& tensor : header->tensors) {
    if (tensor.offset > file.size() || tensor.bytes > file.size() - tensor.offset) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || (data[0] & 1) == 0) {
    parse(std::as_bytes(std::span(data, size)));
    return 0;
  }
  // The second byte says how many bytes of data follow the header.
  const size_t data_bytes = size > 1 ? data[1] : 0;
  const size_t skipped = size > 1 ? 2 : 1;
  const uint64_t length = size - skipped;
  std::vector<std::byte> file(8 + length + data_bytes);
  std::memcpy(file.data(), &length, 8);
  std::memcpy(file.data() + 8, data + skipped, length);
  parse(file);
  return 0;
}
