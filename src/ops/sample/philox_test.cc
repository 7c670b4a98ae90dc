// Goal: philox.h is Philox4x32-10, and its uniform numbers are keyed by seed, choice and position.
// Method: the known answers published with Random123 (kat_vectors, philox4x32 10); the definition
// of `uniform` over them.
#include "ops/sample/philox.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem::ops {
namespace {

using Counter = std::array<uint32_t, 4>;

TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (Counter{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Counter{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(
      philox({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
      (Counter{0xd16cfe09u, 0x94fdcceb, 0x5001e420u, 0x24126ea1u}));
}

TEST(Philox, UniformTakesTheTop53Bits) {
  EXPECT_EQ(uniform(0, 0, 0), static_cast<double>(0x6627e8d5e169c58dull >> 11) / 0x1p53);
  const auto bits = philox({5, 7, 0, 0}, {0x89abcdefu, 0x01234567u});
  EXPECT_EQ(uniform(0x0123456789abcdefull, 7, 5),
            static_cast<double>((uint64_t{bits[0]} << 32 | bits[1]) >> 11) / 0x1p53);
}

TEST(Philox, EveryPartOfTheKeyCounts) {
  std::set<double> numbers;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, uint64_t{1} << 63}) {
    for (uint32_t choice : {0u, 1u, 1u << 31}) {
      for (uint32_t position : {0u, 1u, 1u << 31}) {
        const double u = uniform(seed, choice, position);
        EXPECT_GE(u, 0.0);
        EXPECT_LT(u, 1.0);
        numbers.insert(u);
      }
    }
  }
  EXPECT_EQ(numbers.size(), 4u * 3u * 3u);
}

}  // namespace
}  // namespace tandem::ops
