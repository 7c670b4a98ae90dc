// Contract   tile[r][c] = sum_k rows[r][k] * panel[k][c], see panel.h
// Shapes     1 to 32 rows, 64 columns, any k (padded to even)
// Work       2 * rows * 64 * k flop; reads 128 * k panel bytes once, above 16 rows too
// Roof       one row: memory; 32 rows: one tdpbf16ps per 16 cycles, 1024 flop per cycle
// Plan       up to 16 rows: four tiles of sums side by side, so that the panel streams once. More:
//            2 x 2 tiles of sums for each half of the columns, so that each loaded tile is used
//            twice. Both walk k in blocks of 32 upwards: the same bits. The panel is a tile of B as
//            it lies (16 pairs x 16 columns, 256 bytes apart); a block that k does not fill is
//            copied and padded with zeros
// Measured   see docs/performance.md (tandem bench engine)
// Reference  panel_test.cc
#include "cpu/panel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

namespace tandem::cpu::internal {
namespace {

#define TANDEM_TARGET __attribute__((target("amx-tile,amx-bf16")))

constexpr int kTileRows = 16;
constexpr int64_t kBlockPairs = 16;  // contraction steps of one tile, in pairs
constexpr int64_t kPairBytes = 4;    // of a left-hand row
constexpr int64_t kStepBytes = 256;  // of the panel: 64 pairs
constexpr int64_t kHalfBytes = kStepBytes / 2;
constexpr int64_t kChunkPairs = 256;  // 32 rows of them are 32 KiB, two thirds of L1

// How far ahead the panel is asked for: the hardware does not see tile loads, whose rows lie 256
// bytes apart, as one stream.
constexpr int64_t kPrefetchBytes = 2 * kBlockPairs * kStepBytes;

/// What ldtilecfg reads (Intel SDM, palette 1).
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

/// Tiles 0-3 hold sums, 4 and on the operands. The compiler knows nothing of what tile
/// instructions read and write, hence the fences on memory around them.
TANDEM_TARGET void configure(int rows_0, int rows_1, int rows_2, int rows_3, int rows_4,
                             int rows_5) {
  TileConfig config;
  const int rows[8] = {rows_0, rows_1, rows_2, rows_3, rows_4, rows_5, kTileRows, kTileRows};
  for (int t = 0; t < 8; ++t) {
    config.row_bytes[t] = 64;
    config.rows[t] = static_cast<uint8_t>(rows[t]);
  }
  asm volatile("" ::: "memory");
  _tile_loadconfig(&config);
}

/// The last block of a contraction that is no multiple of 32, padded with zeros.
struct Tail {
  Tail(PanelRows left, int count, const std::byte* panel, int64_t pairs) {
    const int64_t whole = pairs / kBlockPairs * kBlockPairs;
    const auto rest = static_cast<size_t>(pairs - whole);
    for (int r = 0; r < count; ++r) {
      std::memcpy(rows[r], left.row(r) + whole * kPairBytes, rest * kPairBytes);
    }
    std::memcpy(steps, panel + whole * kStepBytes, rest * kStepBytes);
    asm volatile("" ::: "memory");
  }
  alignas(64) std::byte rows[kAmxRowsMax][64] = {};
  alignas(64) std::byte steps[kBlockPairs * kStepBytes] = {};
};

/// One block for up to 16 rows and all columns.
TANDEM_TARGET inline void step_narrow(const std::byte* left, int64_t stride,
                                      const std::byte* panel) {
  for (int64_t line = 0; line < kBlockPairs * kStepBytes; line += 64) {
    _mm_prefetch(panel + kPrefetchBytes + line, _MM_HINT_T0);
  }
  _tile_loadd(4, left, stride);
  _tile_loadd(5, panel, kStepBytes);
  _tile_dpbf16ps(0, 4, 5);
  _tile_loadd(6, panel + 64, kStepBytes);
  _tile_dpbf16ps(1, 4, 6);
  _tile_loadd(7, panel + 128, kStepBytes);
  _tile_dpbf16ps(2, 4, 7);
  _tile_loadd(5, panel + 192, kStepBytes);
  _tile_dpbf16ps(3, 4, 5);
}

/// One block for 17 to 32 rows and half of the columns.
TANDEM_TARGET inline void step_wide(const std::byte* left, int64_t stride, const std::byte* panel) {
  for (int64_t line = 0; line < kBlockPairs * kStepBytes; line += kStepBytes) {
    _mm_prefetch(panel + kPrefetchBytes + line, _MM_HINT_T0);
    _mm_prefetch(panel + kPrefetchBytes + line + 64, _MM_HINT_T0);
  }
  _tile_loadd(6, panel, kStepBytes);
  _tile_loadd(4, left, stride);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(7, panel + 64, kStepBytes);
  _tile_dpbf16ps(1, 4, 7);
  _tile_loadd(5, left + kTileRows * stride, stride);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

TANDEM_TARGET void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

TANDEM_TARGET void narrow(PanelRows left, int count, const std::byte* panel, int64_t pairs,
                          float* tile) {
  configure(count, count, count, count, count, kTileRows);
  zero_sums();
  int64_t pair = 0;
  for (; pair + kBlockPairs <= pairs; pair += kBlockPairs) {
    step_narrow(left.row(0) + pair * kPairBytes, left.stride_bytes, panel + pair * kStepBytes);
  }
  if (pair < pairs) {
    const Tail tail(left, count, panel, pairs);
    step_narrow(tail.rows[0], 64, tail.steps);
  }
  _tile_stored(0, tile, kStepBytes);
  _tile_stored(1, tile + 16, kStepBytes);
  _tile_stored(2, tile + 32, kStepBytes);
  _tile_stored(3, tile + 48, kStepBytes);
}

/// Chunks of k outside, halves of the columns inside, so that the second half finds the rows in L1.
TANDEM_TARGET void wide(PanelRows left, int count, const std::byte* panel, int64_t pairs,
                        float* tile) {
  const int below = count - kTileRows;
  configure(kTileRows, kTileRows, below, below, kTileRows, below);
  for (int64_t first = 0; first < pairs; first += kChunkPairs) {
    const int64_t last = std::min(pairs, first + kChunkPairs);
    for (int64_t half = 0; half < kStepBytes; half += kHalfBytes) {
      float* above_sums = tile + half / kPairBytes;
      float* below_sums = above_sums + kTileRows * kPanelColumns;
      if (first == 0) {
        zero_sums();
      } else {
        _tile_loadd(0, above_sums, kStepBytes);
        _tile_loadd(1, above_sums + 16, kStepBytes);
        _tile_loadd(2, below_sums, kStepBytes);
        _tile_loadd(3, below_sums + 16, kStepBytes);
      }
      int64_t pair = first;
      for (; pair + kBlockPairs <= last; pair += kBlockPairs) {
        step_wide(left.row(0) + pair * kPairBytes, left.stride_bytes,
                  panel + pair * kStepBytes + half);
      }
      if (pair < last) {
        const Tail tail(left, count, panel, pairs);
        step_wide(tail.rows[0], 64, tail.steps + half);
      }
      _tile_stored(0, above_sums, kStepBytes);
      _tile_stored(1, above_sums + 16, kStepBytes);
      _tile_stored(2, below_sums, kStepBytes);
      _tile_stored(3, below_sums + 16, kStepBytes);
    }
  }
}

}  // namespace

TANDEM_TARGET void panel_amx_bf16(PanelRows rows, int rows_count, const void* panel, int64_t k,
                                  float* tile) {
  const auto* steps = static_cast<const std::byte*>(panel);
  const int64_t pairs = (k + 1) / 2;
  if (rows_count <= kTileRows) {
    narrow(rows, rows_count, steps, pairs, tile);
  } else {
    wide(rows, rows_count, steps, pairs, tile);
  }
  _tile_release();
  asm volatile("" ::: "memory");
}

#undef TANDEM_TARGET

}  // namespace tandem::cpu::internal
#endif
