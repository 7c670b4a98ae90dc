// Contract   y = sum of weighted expert rows in the binary tree over expert ids, weighted_rows.h
// Work       reads each row once; memory bound
// Plan       blocks of 512 columns, so that the stack of partial sums stays in L1
// Reference  ops/moe_combine on one rank, expert_combine_test.cc
#include <algorithm>

#include "comm/all_reduce/all_reduce.h"
#include "comm/expert_combine/weighted_rows.h"
#include "cpu/cpu_device.h"
#include "cpu/tree_sum.h"

namespace tandem::comm {
namespace {

constexpr int64_t kBlock = cpu::TreeSum::kColumnsMax;

/// leaf = weight * columns [first, first + n) of a row, rounded to the wire type before.
void weigh_row(float* leaf, const WeightedRowsArgs& args, int64_t row, float weight, int64_t first,
               int64_t n) {
  const int64_t at = row * args.y.shape[1] + first;
  if (args.row_type == DType::kBF16) {
    cpu::scale(leaf, reinterpret_cast<const bf16*>(args.rows) + at, weight, n);
  } else if (args.wire == DType::kBF16) {
    cpu::round_to_bf16(leaf, reinterpret_cast<const float*>(args.rows) + at, n);
    cpu::scale(leaf, leaf, weight, n);
  } else {
    cpu::scale(leaf, reinterpret_cast<const float*>(args.rows) + at, weight, n);
  }
}

/// Columns [first, first + n) of one token.
void sum_token(const WeightedRowsArgs& args, int64_t t, int64_t first, int64_t n) {
  cpu::TreeSum sum(n);
  for (int64_t j = 0; j < args.row_of.shape[1]; ++j) {
    if (args.row_of.row(t)[j] < 0) continue;
    float* leaf = sum.add_leaf(args.expert_ids.row(t)[j]);
    weigh_row(leaf, args, args.row_of.row(t)[j], args.weights.row(t)[j], first, n);
  }
  float* y = args.y.row(t) + first;
  if (args.accumulate) {
    if (!sum.empty()) cpu::add(y, sum.finish(), n);
  } else if (sum.empty()) {
    std::fill_n(y, n, AllReduce::kNoPart);
  } else {
    sum.finish(y);
  }
}

}  // namespace

Result<void> weighted_rows_cpu(Stream& stream, const WeightedRowsArgs& args) {
  const int64_t hidden = args.y.shape[1];
  const int64_t blocks = (hidden + kBlock - 1) / kBlock;
  cpu::cpu_stream(stream).team().parallel_for(args.y.shape[0] * blocks, [&](int64_t task, int) {
    const int64_t first = task % blocks * kBlock;
    sum_token(args, task / blocks, first, std::min(kBlock, hidden - first));
  });
  return {};
}

}  // namespace tandem::comm
