// Contract   every rank's block of a matrix to every rank, gather_blocks.h
// Work       each float is packed and put at its maker, and copied at every other rank
// Reference  the whole matrix made by one rank, gather_blocks_test.cc
#include <algorithm>

#include "comm/gather_blocks/gather_blocks.h"
#include "cpu/cpu_device.h"

namespace tandem::comm {
namespace {

/// Piece number `piece` of a block that travels `rows_max` rows at a time.
Block piece_of(const Block& block, int64_t piece, int64_t rows_max) {
  const int64_t skipped = std::min(block.rows, piece * rows_max);
  return {.first_row = block.first_row + skipped,
          .rows = std::min(rows_max, block.rows - skipped),
          .first_column = block.first_column,
          .columns = block.columns};
}

float* row_of(const TensorView<float, 2>& y, const Block& block, int64_t row) {
  return y.row(block.first_row + row) + block.first_column;
}

}  // namespace

Result<GatherBlocks> GatherBlocks::create(SymmetricHeap& heap, Options options) {
  TANDEM_CHECK(options.columns_max >= 1, "blocks have a limit");
  options.floats_max = std::max(options.floats_max, options.columns_max);
  return GatherBlocks(
      heap, options,
      TANDEM_TRY(AllGather::create(heap, static_cast<size_t>(options.floats_max) * sizeof(float),
                                   WaitKind::kGatherBlocks)));
}

Result<void> GatherBlocks::run(Stream& stream, TensorView<float, 2> y,
                               std::span<const Block> blocks) {
  TANDEM_CHECK(blocks.size() == static_cast<size_t>(heap_->ranks_count()), "a block per rank");
  int64_t rows_most = 0;
  int64_t columns_most = 1;
  for (const Block& block : blocks) {
    TANDEM_CHECK(block.columns <= options_.columns_max, "no block is wider than announced");
    rows_most = std::max(rows_most, block.rows);
    columns_most = std::max(columns_most, block.columns);
  }
  const int64_t rows_max = options_.floats_max / columns_most;
  cpu::ThreadTeam& team = cpu::cpu_stream(stream).team();
  for (int64_t piece = 0; piece * rows_max < rows_most; ++piece) {
    const Block own = piece_of(blocks[static_cast<size_t>(heap_->rank())], piece, rows_max);
    for (int64_t row = 0; row < own.rows; ++row) {
      std::copy_n(row_of(y, own, row), own.columns, packed_.data() + row * own.columns);
    }
    gather_.start(
        std::as_bytes(std::span(packed_).first(static_cast<size_t>(own.rows * own.columns))));
    const auto* arrived = reinterpret_cast<const float*>(TANDEM_TRY(gather_.finish()).data());
    team.parallel_for(heap_->ranks_count() * rows_max, [&](int64_t index, int) {
      const int64_t rank = index / rows_max;
      const int64_t row = index % rows_max;
      const Block block = piece_of(blocks[static_cast<size_t>(rank)], piece, rows_max);
      if (rank == heap_->rank() || row >= block.rows) return;
      std::copy_n(arrived + rank * options_.floats_max + row * block.columns, block.columns,
                  row_of(y, block, row));
    });
  }
  return {};
}

}  // namespace tandem::comm
