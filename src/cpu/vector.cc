#include "cpu/vector.h"

#define HWY_WANT_AVX3_DL 1
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/vector.cc"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

/// Calls body(i, load, store) for whole vectors, then once for the tail. Loads of the tail read
/// zeros past the end, stores write only what exists.
template <typename Body>
HWY_INLINE void for_each_vector(int64_t n, Body body) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    body(
        i, [d](const float* p) HWY_ATTR { return hn::LoadU(d, p); },
        [d](V v, float* p) HWY_ATTR { hn::StoreU(v, d, p); });
  }
  if (i < n) {
    const auto left = static_cast<size_t>(n - i);
    HWY_ALIGN float tail[HWY_MAX_BYTES / sizeof(float)];
    body(
        i,
        [&](const float* p) HWY_ATTR {
          hn::Store(hn::Zero(d), d, tail);
          for (size_t j = 0; j < left; ++j) tail[j] = p[j];
          return hn::Load(d, tail);
        },
        [&](V v, float* p) HWY_ATTR {
          hn::Store(v, d, tail);
          for (size_t j = 0; j < left; ++j) p[j] = tail[j];
        });
  }
}

float SumOfSquares(const float* x, int64_t n) {
  const D d;
  V sum = hn::Zero(d);
  for_each_vector(n, [&](int64_t i, auto load, auto) HWY_ATTR {
    const V v = load(x + i);
    sum = hn::MulAdd(v, v, sum);
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

float MaxValue(const float* x, int64_t n) {
  const D d;
  V best = hn::Set(d, x[0]);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) best = hn::Max(best, hn::LoadU(d, x + i));
  float result = hn::GetLane(hn::MaxOfLanes(d, best));
  for (; i < n; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

void ScaleRow(float* out, const float* x, float scale, const float* weight, int64_t n) {
  const V s = hn::Set(D(), scale);
  for_each_vector(n, [&](int64_t i, auto load, auto store) HWY_ATTR {
    store(hn::Mul(hn::Mul(load(x + i), s), load(weight + i)), out + i);
  });
}

void Add(float* out, const float* x, const float* y, int64_t n) {
  for_each_vector(n, [&](int64_t i, auto load, auto store)
                         HWY_ATTR { store(hn::Add(load(x + i), load(y + i)), out + i); });
}

void Scale(float* out, const float* x, float scale, int64_t n) {
  const V s = hn::Set(D(), scale);
  for_each_vector(n, [&](int64_t i, auto load, auto store)
                         HWY_ATTR { store(hn::Mul(load(x + i), s), out + i); });
}

float ExpShifted(float* out, const float* x, float shift, int64_t n) {
  const D d;
  const V s = hn::Set(d, shift);
  V sum = hn::Zero(d);
  for_each_vector(n, [&](int64_t i, auto load, auto store) HWY_ATTR {
    const V v = hn::Sub(load(x + i), s);
    // The approximation underflows to zero only down to about -104; -inf is made exact here, and a
    // NaN is kept: the maximum below would turn it into the smallest number.
    const V exp = hn::IfThenZeroElse(hn::Lt(v, hn::Set(d, -104.0f)),
                                     hn::Exp(d, hn::Max(v, hn::Set(d, -104.0f))));
    const V e = hn::IfThenElse(hn::IsNaN(v), v, exp);
    store(e, out + i);
    if (n - i >= static_cast<int64_t>(hn::Lanes(d))) {
      sum = hn::Add(sum, e);
    } else {
      sum = hn::Add(sum, hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n - i)), e));
    }
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void SiluMul(float* out, const float* gate, const float* up, int64_t n) {
  const D d;
  const V one = hn::Set(d, 1.0f);
  for_each_vector(n, [&](int64_t i, auto load, auto store) HWY_ATTR {
    const V g = load(gate + i);
    // Clamped: beyond +-88 the exponential leaves float's range. Above, the quotient is g anyway;
    // below -104 it is zero, made exact here because a huge g would win over the clamped exp(88).
    const V z = hn::Clamp(hn::Neg(g), hn::Set(d, -88.0f), hn::Set(d, 88.0f));
    const V silu =
        hn::IfThenZeroElse(hn::Lt(g, hn::Set(d, -104.0f)), hn::Div(g, hn::Add(one, hn::Exp(d, z))));
    store(hn::Mul(silu, load(up + i)), out + i);
  });
}

void RotatePairs(float* x, const float* cos, const float* sin, int64_t half) {
  for_each_vector(half, [&](int64_t i, auto load, auto store) HWY_ATTR {
    const V a = load(x + i);
    const V b = load(x + half + i);
    const V c = load(cos + i);
    const V s = load(sin + i);
    store(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), x + i);
    store(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), x + half + i);
  });
}

/// The upper half of each float, rounded to nearest even, in the low half of a 32-bit lane.
template <class DU>
HWY_INLINE hn::Vec<DU> RoundedHalf(DU du, hn::Vec<DU> bits) {
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu))));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40u));
  return hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7f800000u)), quiet, rounded);
}

void ToBf16(bf16* out, const float* x, int64_t n) {
  const hn::ScalableTag<uint32_t> du;
  const hn::Rebind<uint16_t, decltype(du)> du16;
  const auto lanes = static_cast<int64_t>(hn::Lanes(du));
  auto* bits = reinterpret_cast<uint16_t*>(out);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = RoundedHalf(du, hn::BitCast(du, hn::LoadU(D(), x + i)));
    hn::StoreU(hn::TruncateTo(du16, v), du16, bits + i);
  }
  for (; i < n; ++i) out[i] = tandem::to_bf16(x[i]);
}

void RoundToBf16(float* out, const float* x, int64_t n) {
  const hn::ScalableTag<uint32_t> du;
  for_each_vector(n, [&](int64_t i, auto load, auto store) HWY_ATTR {
    const auto v = RoundedHalf(du, hn::BitCast(du, load(x + i)));
    store(hn::BitCast(D(), hn::ShiftLeft<16>(v)), out + i);
  });
}

/// out = change(x as floats), where change is for one vector and change_one for one float.
template <typename Change, typename ChangeOne>
HWY_INLINE void from_bf16(float* out, const bf16* x, int64_t n, Change change,
                          ChangeOne change_one) {
  const hn::ScalableTag<uint32_t> du;
  const hn::Rebind<uint16_t, decltype(du)> du16;
  const auto lanes = static_cast<int64_t>(hn::Lanes(du));
  const auto* bits = reinterpret_cast<const uint16_t*>(x);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(du16, bits + i)));
    hn::StoreU(change(hn::BitCast(D(), v)), D(), out + i);
  }
  for (; i < n; ++i) out[i] = change_one(tandem::to_float(x[i]));
}

void ToFloat(float* out, const bf16* x, int64_t n) {
  from_bf16(out, x, n, [](V v) HWY_ATTR { return v; }, [](float v) { return v; });
}

void ScaleBf16(float* out, const bf16* x, float scale, int64_t n) {
  const V s = hn::Set(D(), scale);
  from_bf16(
      out, x, n, [s](V v) HWY_ATTR { return hn::Mul(v, s); },
      [scale](float v) { return v * scale; });
}

}  // namespace tandem::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

HWY_EXPORT(SumOfSquares);
HWY_EXPORT(MaxValue);
HWY_EXPORT(ScaleRow);
HWY_EXPORT(Add);
HWY_EXPORT(Scale);
HWY_EXPORT(ExpShifted);
HWY_EXPORT(SiluMul);
HWY_EXPORT(RotatePairs);
HWY_EXPORT(ToBf16);
HWY_EXPORT(RoundToBf16);
HWY_EXPORT(ToFloat);
HWY_EXPORT(ScaleBf16);

float sum_of_squares(const float* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquares)(x, n);
}
float max_value(const float* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(MaxValue)(x, n);
}
void scale_row(float* out, const float* x, float scale, const float* weight, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ScaleRow)(out, x, scale, weight, n);
}
void add(float* y, const float* x, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Add)(y, y, x, n);
}
void add(float* out, const float* x, const float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Add)(out, x, y, n);
}
void scale(float* out, const float* x, float scale, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Scale)(out, x, scale, n);
}
void scale(float* out, const bf16* x, float scale, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ScaleBf16)(out, x, scale, n);
}
float exp_shifted(float* out, const float* x, float shift, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(ExpShifted)(out, x, shift, n);
}
void silu_mul(float* out, const float* gate, const float* up, int64_t n) {
  HWY_DYNAMIC_DISPATCH(SiluMul)(out, gate, up, n);
}
void rotate_pairs(float* x, const float* cos, const float* sin, int64_t half) {
  HWY_DYNAMIC_DISPATCH(RotatePairs)(x, cos, sin, half);
}
void to_bf16(bf16* out, const float* x, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ToBf16)(out, x, n);
}
void round_to_bf16(float* out, const float* x, int64_t n) {
  HWY_DYNAMIC_DISPATCH(RoundToBf16)(out, x, n);
}
void to_float(float* out, const bf16* x, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ToFloat)(out, x, n);
}

}  // namespace tandem::cpu
#endif  // HWY_ONCE
