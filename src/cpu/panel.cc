// Contract   tile[r][c] = sum_k rows[r][k] * panel[k][c], f32 and bf16, see panel.h
// Shapes     1 to 6 rows, 64 columns, any k (bf16: padded to even)
// Work       2 * rows * 64 * k flop; reads each panel element once
// Roof       one row: memory; six rows: the f32 multiply-adds of the vector units, for bf16 too
// Plan       6 rows x 4 vectors of sums in registers (x 2 where there are 16 of them), 64 columns
//            in as many walks along k as that takes; a bf16 pair becomes two f32 by shift and mask,
//            low half first; k ascending, one accumulator per element
// Measured   see docs/performance.md (tandem bench engine, --matrix-path portable)
// Reference  panel_test.cc
#include "cpu/panel.h"

#include <cstring>

#define HWY_WANT_AVX3_DL 1
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/panel.cc"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 32 registers hold 6 rows x 4 vectors of sums, 16 registers 6 x 2.
constexpr int kVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

// How far ahead the panel is asked for: about 4 KiB covers the latency of memory at one core's
// share of bandwidth, and the hardware prefetcher stops at page ends.
constexpr int64_t kPrefetchSteps = 16;

/// One contraction step of f32: rows' element broadcast, one product per column.
struct StepF32 {
  static constexpr int64_t kStride = kPanelColumns;  // floats per step
  template <class D, int kRows>
  static HWY_INLINE void run(D d, const std::byte* const (&rows)[kRows], const float* at, int64_t k,
                             hn::Vec<D> (&sum)[kRows][kVectors]) {
    const auto lanes = hn::Lanes(d);
    hn::Vec<D> w[kVectors];
    for (int v = 0; v < kVectors; ++v) w[v] = hn::LoadU(d, at + static_cast<size_t>(v) * lanes);
    for (int r = 0; r < kRows; ++r) {
      const auto x = hn::Set(d, reinterpret_cast<const float*>(rows[r])[k]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(x, w[v], sum[r][v]);
    }
  }
};

/// Two contraction steps of bf16: a 32-bit lane holds both halves of a column; the low half first.
struct StepBf16 {
  static constexpr int64_t kStride = kPanelColumns;  // 32-bit pairs per step
  template <class D, int kRows>
  static HWY_INLINE void run(D d, const std::byte* const (&rows)[kRows], const float* at, int64_t k,
                             hn::Vec<D> (&sum)[kRows][kVectors]) {
    const hn::RebindToUnsigned<D> du;
    const auto lanes = hn::Lanes(d);
    const auto high = hn::Set(du, 0xffff0000u);
    hn::Vec<D> low_w[kVectors];
    hn::Vec<D> high_w[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const auto pair = hn::BitCast(du, hn::LoadU(d, at + static_cast<size_t>(v) * lanes));
      low_w[v] = hn::BitCast(d, hn::ShiftLeft<16>(pair));
      high_w[v] = hn::BitCast(d, hn::And(pair, high));
    }
    for (int r = 0; r < kRows; ++r) {
      uint32_t pair;
      std::memcpy(&pair, rows[r] + k * int64_t{sizeof pair}, sizeof pair);
      const auto low_x = hn::BitCast(d, hn::Set(du, pair << 16));
      const auto high_x = hn::BitCast(d, hn::Set(du, pair & 0xffff0000u));
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = hn::MulAdd(low_x, low_w[v], sum[r][v]);
        sum[r][v] = hn::MulAdd(high_x, high_w[v], sum[r][v]);
      }
    }
  }
};

template <class Step, int kRows>
HWY_INLINE void Columns(PanelRows left, const float* panel, int64_t steps, float* tile) {
  const std::byte* rows[kRows];
  for (int r = 0; r < kRows; ++r) rows[r] = left.row(r);
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t column = 0; column < kPanelColumns; column += kVectors * lanes) {
    V sum[kRows][kVectors];
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
    }
    for (int64_t k = 0; k < steps; ++k) {
      const float* at = panel + k * Step::kStride + column;
      for (int v = 0; v < kVectors; ++v) {
        hwy::Prefetch(at + kPrefetchSteps * Step::kStride + v * lanes);
      }
      Step::template run<decltype(d), kRows>(d, rows, at, k, sum);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(sum[r][v], d, tile + r * kPanelColumns + column + v * lanes);
      }
    }
  }
}

template <class Step>
HWY_INLINE void Rows(PanelRows rows, int count, const void* panel, int64_t steps, float* tile) {
  const auto* p = static_cast<const float*>(panel);
  switch (count) {
    case 1:
      return Columns<Step, 1>(rows, p, steps, tile);
    case 2:
      return Columns<Step, 2>(rows, p, steps, tile);
    case 3:
      return Columns<Step, 3>(rows, p, steps, tile);
    case 4:
      return Columns<Step, 4>(rows, p, steps, tile);
    case 5:
      return Columns<Step, 5>(rows, p, steps, tile);
    default:
      return Columns<Step, 6>(rows, p, steps, tile);
  }
}

void PanelF32(PanelRows rows, int count, const void* panel, int64_t k, float* tile) {
  Rows<StepF32>(rows, count, panel, k, tile);
}

void PanelBf16(PanelRows rows, int count, const void* panel, int64_t k, float* tile) {
  Rows<StepBf16>(rows, count, panel, (k + 1) / 2, tile);
}

}  // namespace tandem::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {
namespace {

HWY_EXPORT(PanelF32);
HWY_EXPORT(PanelBf16);

void panel_f32(PanelRows rows, int count, const void* panel, int64_t k, float* tile) {
  HWY_DYNAMIC_DISPATCH(PanelF32)(rows, count, panel, k, tile);
}
void panel_bf16(PanelRows rows, int count, const void* panel, int64_t k, float* tile) {
  HWY_DYNAMIC_DISPATCH(PanelBf16)(rows, count, panel, k, tile);
}

}  // namespace

PanelKernel panel_kernel(MatrixPath path, DType dtype) {
  if (dtype == DType::kF32) return {panel_f32, internal::kVectorRowsMax};
  TANDEM_CHECK(dtype == DType::kBF16, "panels are f32 or bf16");
#if defined(__x86_64__)
  if (path == MatrixPath::kAmxBf16) return {internal::panel_amx_bf16, internal::kAmxRowsMax};
  if (path == MatrixPath::kAvx512Bf16) {
    return {internal::panel_avx512_bf16, internal::kVectorRowsMax};
  }
#endif
  return {panel_bf16, internal::kVectorRowsMax};
}

}  // namespace tandem::cpu
#endif  // HWY_ONCE
