// Goal: the 16-bit float conversions agree with their definitions on every bit pattern.
// Method: exhaustive over 65,536 patterns; ties and NaN by construction.
#include "device/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tandem {
namespace {

TEST(BFloat16, EveryPatternRoundTrips) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const bf16 x{static_cast<uint16_t>(bits)};
    const float f = to_float(x);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(to_float(to_bf16(f))));
    } else {
      EXPECT_EQ(to_bf16(f).bits, x.bits);
    }
  }
}

TEST(BFloat16, RoundsToNearestEven) {
  const float ulp = 0x1p-7f;                                           // of numbers in [1, 2)
  EXPECT_EQ(to_float(to_bf16(1.0f + 0.5f * ulp)), 1.0f);               // tie, even below
  EXPECT_EQ(to_float(to_bf16(1.0f + 1.5f * ulp)), 1.0f + 2.0f * ulp);  // tie, even above
  EXPECT_EQ(to_float(to_bf16(1.0f + 0.51f * ulp)), 1.0f + ulp);
  EXPECT_EQ(to_float(to_bf16(std::numeric_limits<float>::max())),
            std::numeric_limits<float>::infinity());
}

TEST(Float16, EveryPatternHasItsValue) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const float f = f16_to_float(static_cast<uint16_t>(bits));
    const int exponent = (bits >> 10) & 0x1f;
    const double fraction = (bits & 0x3ff) / 1024.0;
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(f), fraction != 0.0);
      EXPECT_EQ(std::isinf(f), fraction == 0.0);
      continue;
    }
    const double expected = exponent == 0 ? sign * std::ldexp(fraction, -14)
                                          : sign * std::ldexp(1.0 + fraction, exponent - 15);
    EXPECT_EQ(static_cast<double>(f), expected) << bits;
    EXPECT_EQ(std::signbit(f), sign < 0);
  }
}

}  // namespace
}  // namespace tandem
