#include "kv/hash.h"

#include <xxhash.h>

namespace tandem::kv {

uint64_t xxh3_hash(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace tandem::kv
