// Goal: every rank ends with the whole matrix, whatever the blocks and the pieces they travel in,
// and puts what the header says. Method: ranks fill their block of a matrix of NaN.
#include "comm/gather_blocks/gather_blocks.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "comm/testing/run_ranks.h"

namespace tandem::comm {
namespace {

constexpr int64_t kRows = 7;
constexpr int64_t kColumns = 50;

float value_at(int64_t row, int64_t column) {
  return test_value(3, static_cast<uint64_t>(row * kColumns + column));
}

void expect_whole(int ranks, const std::vector<Block>& blocks, int64_t floats_max) {
  expect_ranks(ranks, 1 << 20, [&](SymmetricHeap& heap) -> Result<void> {
    auto gather =
        TANDEM_TRY(GatherBlocks::create(heap, {.columns_max = kColumns, .floats_max = floats_max}));
    const auto stream = rank_stream();
    const Block& own = blocks[static_cast<size_t>(heap.rank())];
    for (int call = 0; call < 3; ++call) {
      std::vector<float> values(kRows * kColumns, std::numeric_limits<float>::quiet_NaN());
      const auto y = TensorView<float, 2>::make(values.data(), {kRows, kColumns});
      for (int64_t r = own.first_row; r < own.first_row + own.rows; ++r) {
        for (int64_t c = own.first_column; c < own.first_column + own.columns; ++c) {
          y.row(r)[c] = value_at(r, c);
        }
      }
      const uint64_t before = heap.counters().bytes_put;
      TANDEM_TRY(gather.run(*stream, y, blocks));
      EXPECT_EQ(heap.counters().bytes_put - before,
                static_cast<uint64_t>((ranks - 1) * own.rows * own.columns) * sizeof(float));
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t c = 0; c < kColumns; ++c) EXPECT_EQ(y.row(r)[c], value_at(r, c));
      }
    }
    return {};
  });
}

TEST(GatherBlocks, ColumnsOfEveryRank) {
  for (int64_t floats_max : {1, 50, 64, 1000}) {
    expect_whole(3, {{0, kRows, 0, 17}, {0, kRows, 17, 17}, {0, kRows, 34, 16}}, floats_max);
  }
}

TEST(GatherBlocks, RowsOfEveryRankAndOfSomeNone) {
  for (int64_t floats_max : {1, 120, 1000}) {
    expect_whole(3, {{0, 4, 0, kColumns}, {4, 0, 0, kColumns}, {4, 3, 0, kColumns}}, floats_max);
  }
}

TEST(GatherBlocks, OneRankAlone) {
  expect_whole(1, {{0, kRows, 0, kColumns}}, 100);
}

}  // namespace
}  // namespace tandem::comm
