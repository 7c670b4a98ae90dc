// Contract   y += sum of weighted expert rows in the binary tree over expert ids, moe_combine.h
// Shapes     any tokens, k and hidden; the expert ids of a token ascend
// Work       reads tokens * k rows once
// Roof       memory
// Plan       blocks of 512 columns, so that the stack of partial sums stays in L1
// Measured   not alone yet; its part of a step: tandem bench engine --ops
// Reference  moe_combine_test.cc
#include <algorithm>

#include "cpu/cpu_device.h"
#include "cpu/tree_sum.h"
#include "cpu/vector.h"
#include "ops/moe_combine/moe_combine.h"

namespace tandem::ops {
namespace {

constexpr int64_t kBlock = cpu::TreeSum::kColumnsMax;

/// Columns [first, first + n) of one token.
void combine(const MoeCombineArgs& args, int64_t t, int64_t first, int64_t n) {
  cpu::TreeSum sum(n);
  const int32_t* ids = args.expert_ids.row(t);
  for (int64_t j = 0; j < args.expert_ids.shape[1]; ++j) {
    float* leaf = sum.add_leaf(ids[j]);
    const float* row = args.rows.row(args.row_of.row(t)[j]) + first;
    if (args.wire == DType::kBF16) {
      cpu::round_to_bf16(leaf, row, n);
      row = leaf;
    }
    cpu::scale(leaf, row, args.weights.row(t)[j], n);
  }
  cpu::add(args.y.row(t) + first, sum.finish(), n);
}

}  // namespace

Result<void> moe_combine_cpu(Stream& stream, const MoeCombineArgs& args) {
  const int64_t hidden = args.y.shape[1];
  const int64_t blocks = (hidden + kBlock - 1) / kBlock;
  cpu::cpu_stream(stream).team().parallel_for(args.y.shape[0] * blocks, [&](int64_t task, int) {
    const int64_t first = task % blocks * kBlock;
    combine(args, task / blocks, first, std::min(kBlock, hidden - first));
  });
  return {};
}

}  // namespace tandem::ops
