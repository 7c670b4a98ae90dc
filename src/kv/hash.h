#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem::kv {

/// Hashes bytes under a seed. Only speed depends on its quality: every hit is proved by comparing
/// what was hashed, so tests may inject a hash that collides all the time.
using HashFunction = uint64_t (*)(std::span<const std::byte> bytes, uint64_t seed);

/// The hash used in production: XXH3, 64 bits.
uint64_t xxh3_hash(std::span<const std::byte> bytes, uint64_t seed);

}  // namespace tandem::kv
