#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "comm/all_gather/all_gather.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tandem::comm {

/// Some rows and columns of a matrix.
struct Block {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_column = 0;
  int64_t columns = 0;
};

/// A matrix of which every rank has made one block: afterwards every rank has all of it. For
/// logits (blocks of columns) and for tokens that ranks have shared out (blocks of rows).
///
/// Phases     per piece of rows: 1 put the rows of the own block to every rank, signal, 2 wait for
///            all, copy the others' blocks to their places
/// Bytes      (N-1) * own block per rank
/// Roof       memory: each byte of a block is put once per peer and copied once
/// Reuse      that of all_gather
class GatherBlocks {
 public:
  /// For matrices that are longer: a piece of 1 MiB amortises a signal.
  static constexpr int64_t kPieceFloats = 1 << 18;
  struct Options {
    int64_t columns_max = 0;  ///< of any block
    int64_t floats_max = 0;   ///< blocks travel in pieces of this size, at least a row at a time
  };
  /// All ranks, at the same place of their allocations, with the same options.
  static Result<GatherBlocks> create(SymmetricHeap& heap, Options options);

  /// `blocks` [ranks] are the same on all ranks; some may be empty.
  Result<void> run(Stream& stream, TensorView<float, 2> y, std::span<const Block> blocks);

 private:
  GatherBlocks(SymmetricHeap& heap, Options options, AllGather gather)
      : heap_(&heap),
        options_(options),
        gather_(std::move(gather)),
        packed_(static_cast<size_t>(options.floats_max)) {}

  SymmetricHeap* heap_;
  Options options_;
  AllGather gather_;
  std::vector<float> packed_;  // the piece being sent
};

}  // namespace tandem::comm
