#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "comm/all_reduce/all_reduce.h"
#include "comm/symmetric_heap.h"
#include "device/device.h"
#include "device/tensor.h"

namespace tandem::comm {

/// Where every rank holds every token: y[t] += the weighted outputs of t's experts, wherever they
/// are. Every rank gets the same bits; when ExpertRanges::is_one_tree(), those of ops/moe_combine
/// on one rank.
///
/// Phases     1 sum this rank's experts per token, 2 all-reduce the sums, 3 add them to y
/// Bytes      those of the all-reduce for B = tokens * hidden * 4
/// Roof       memory: reads this rank's rows, then the all-reduce
/// Reuse      the all-reduce's
class ExpertCombine {
 public:
  struct Options {
    int64_t tokens_max = 0;
    int64_t hidden = 0;
  };
  /// All ranks, at the same place of their allocations, with the same options.
  static Result<ExpertCombine> create(SymmetricHeap& heap, Options options);

  struct Args {
    TensorView<const float, 2> rows;          ///< [rows of this rank, hidden], dense
    TensorView<const int32_t, 2> row_of;      ///< [tokens, k], from expert_select
    TensorView<const int32_t, 2> expert_ids;  ///< [tokens, k], ascending in each row
    TensorView<const float, 2> weights;       ///< [tokens, k]
    DType wire = DType::kF32;                 ///< rows are rounded to this type first
    TensorView<float, 2> y;                   ///< [tokens, hidden]
  };
  Result<void> run(Stream& stream, const Args& args);

 private:
  ExpertCombine(Options options, AllReduce all_reduce);

  Options options_;
  AllReduce all_reduce_;
  std::vector<float> sums_;  // [tokens_max, hidden]
};

}  // namespace tandem::comm
