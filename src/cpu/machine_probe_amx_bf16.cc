// The peak of tdpbf16ps, for machine_probe.h.
#include "cpu/machine_probe.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace tandem::cpu::internal {

__attribute__((target("amx-tile,amx-bf16"))) double chain_flops_amx_bf16(int64_t rounds,
                                                                         float* sink) {
  constexpr double kFlopsPerInstruction = 2.0 * 16 * 16 * 32;  // rows x columns x contraction
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  alignas(64) uint16_t ones[16][32];
  alignas(64) float sums[16][16];
  for (auto& row : ones) {
    for (int i = 0; i < 32; ++i) row[i] = i % 2 == 0 ? 0x3f80 : 0xbf80;  // 1.0 and -1.0
  }
  asm volatile("" ::: "memory");
  _tile_loadconfig(&config);
  // Six chains of sums: more than latency times units.
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_loadd(6, ones, 64);
  _tile_loadd(7, ones, 64);
  constexpr int kChains = 6;
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(4, 6, 7);
    _tile_dpbf16ps(5, 6, 7);
  }
  _tile_stored(0, sums, 64);
  _tile_release();
  asm volatile("" ::: "memory");
  *sink = sums[0][0];
  return kFlopsPerInstruction * kChains * static_cast<double>(rounds);
}

}  // namespace tandem::cpu::internal
#endif
