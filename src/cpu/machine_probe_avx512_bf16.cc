// The peak of vdpbf16ps, for machine_probe.h.
#include "cpu/machine_probe.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace tandem::cpu::internal {

__attribute__((target("avx512f,avx512bf16"))) double chain_flops_avx512_bf16(int64_t rounds,
                                                                             float* sink) {
  constexpr int kChains = 12;                                   // latency times units is below
  constexpr double kFlopsPerInstruction = 2.0 * 32;             // 16 lanes, two products in each
  const auto x = (__m512bh)_mm512_set1_epi32(0x3f803f80);       // pairs of 1.0
  const auto y = (__m512bh)_mm512_set1_epi32(int(0xbf803f80));  // pairs of 1.0 and -1.0
  __m512 sum[kChains];
  for (int c = 0; c < kChains; ++c) sum[c] = _mm512_set1_ps(static_cast<float>(c));
  for (int64_t i = 0; i < rounds; ++i) {
    for (int c = 0; c < kChains; ++c) sum[c] = _mm512_dpbf16_ps(sum[c], x, y);
  }
  *sink = 0.0f;
  for (int c = 0; c < kChains; ++c) *sink += _mm512_cvtss_f32(sum[c]);
  return kFlopsPerInstruction * kChains * static_cast<double>(rounds);
}

}  // namespace tandem::cpu::internal
#endif
