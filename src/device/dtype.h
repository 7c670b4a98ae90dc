#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tandem {

enum class DType : uint8_t { kF32, kBF16, kF16, kI32, kU8 };

constexpr size_t dtype_bytes(DType type) {
  switch (type) {
    case DType::kF32:
      return 4;
    case DType::kBF16:
      return 2;
    case DType::kF16:
      return 2;
    case DType::kI32:
      return 4;
    case DType::kU8:
      return 1;
  }
  return 0;
}

constexpr const char* dtype_name(DType type) {
  switch (type) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kI32:
      return "i32";
    case DType::kU8:
      return "u8";
  }
  return "?";
}

/// The upper half of an IEEE float. A storage type: arithmetic happens in float.
struct bf16 {
  uint16_t bits;
};

constexpr float to_float(bf16 x) {
  return std::bit_cast<float>(uint32_t{x.bits} << 16);
}
constexpr float to_float(float x) {
  return x;
}

/// Rounds to nearest, ties to even. NaN stays NaN (quiet).
constexpr bf16 to_bf16(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return bf16{static_cast<uint16_t>((u >> 16) | 0x40u)};
  u += 0x7fffu + ((u >> 16) & 1u);
  return bf16{static_cast<uint16_t>(u >> 16)};
}

/// IEEE half to float, exact (subnormals, infinities and NaN included).
constexpr float f16_to_float(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu;
  const uint32_t fraction = h & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
  }
  // Subnormal: fraction * 2^-24, exact in float.
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

/// Element i of an array of kF32, kBF16 or kF16 as a float. Files give no alignment beyond a byte.
inline float load_float(const void* data, DType dtype, int64_t i) {
  const auto* at =
      static_cast<const std::byte*>(data) + i * static_cast<int64_t>(dtype_bytes(dtype));
  if (dtype == DType::kF32) {
    float x;
    std::memcpy(&x, at, sizeof x);
    return x;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return dtype == DType::kBF16 ? to_float(bf16{bits}) : f16_to_float(bits);
}

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};

}  // namespace tandem
