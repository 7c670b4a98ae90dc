#pragma once

#include <array>
#include <cstdint>

namespace tandem::ops {

/// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011): a counter-based random function.
inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter,
                                      std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// A uniform number in [0, 1) with 53 random bits.
inline double uniform(uint64_t seed, uint32_t choice_index, uint32_t position) {
  const auto bits = philox({position, choice_index, 0, 0},
                           {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<double>((uint64_t{bits[0]} << 32 | bits[1]) >> 11) * 0x1p-53;
}

}  // namespace tandem::ops
