// Contract   tile[r][c] = sum_k rows[r][k] * panel[k][c], see panel.h
// Shapes     1 to 6 rows, 64 columns, any k (padded to even)
// Work       2 * rows * 64 * k flop; reads 128 * k panel bytes once
// Roof       one row: memory (1 flop per byte); six rows: one vdpbf16ps per cycle
// Plan       4 vectors x up to 6 rows of sums in registers; the panel streams, row pairs are
//            broadcast from L1; pairs of k ascending, one accumulator per element
// Measured   see docs/performance.md (tandem bench engine)
// Reference  panel_test.cc
#include "cpu/panel.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace tandem::cpu::internal {
namespace {

#define TANDEM_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

// How far ahead the panel is asked for: about 4 KiB covers the latency of memory at one core's
// share of bandwidth, and the hardware prefetcher stops at page ends.
constexpr int64_t kPrefetchPairs = 16;

template <int kRows>
TANDEM_TARGET void multiply(PanelRows rows, const void* panel, int64_t pairs, float* tile) {
  constexpr int kVectors = 4;
  const auto* p = static_cast<const char*>(panel);
  const int* x[kRows];
  __m512 sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    x[r] = rows.row<int>(r);
    for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_setzero_ps();
  }
  for (int64_t k = 0; k < pairs; ++k, p += 256) {
    __m512bh w[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      _mm_prefetch(p + kPrefetchPairs * 256 + v * 64, _MM_HINT_T0);
      w[v] = (__m512bh)_mm512_loadu_si512(p + v * 64);
    }
    for (int r = 0; r < kRows; ++r) {
      const auto pair = (__m512bh)_mm512_set1_epi32(x[r][k]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], pair, w[v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      _mm512_storeu_ps(tile + r * kPanelColumns + v * 16, sum[r][v]);
    }
  }
}

#undef TANDEM_TARGET

}  // namespace

void panel_avx512_bf16(PanelRows rows, int rows_count, const void* panel, int64_t k, float* tile) {
  const int64_t pairs = (k + 1) / 2;
  switch (rows_count) {
    case 1:
      return multiply<1>(rows, panel, pairs, tile);
    case 2:
      return multiply<2>(rows, panel, pairs, tile);
    case 3:
      return multiply<3>(rows, panel, pairs, tile);
    case 4:
      return multiply<4>(rows, panel, pairs, tile);
    case 5:
      return multiply<5>(rows, panel, pairs, tile);
    default:
      return multiply<6>(rows, panel, pairs, tile);
  }
}

}  // namespace tandem::cpu::internal
#endif
