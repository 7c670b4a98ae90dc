// Contract   y += sum of weighted expert rows in the binary tree over expert ids, moe_combine.h
// Work       reads tokens * k rows once; memory bound
// Plan       blocks of 512 columns, so that the stack of partial sums stays in L1
// Reference  moe_combine_test.cc
#include <algorithm>
#include <bit>

#include "cpu/cpu_device.h"
#include "cpu/vector.h"
#include "ops/moe_combine/moe_combine.h"

namespace tandem::ops {
namespace {

constexpr int64_t kBlock = 512;
constexpr int kStackMax = 33;  // levels of a tree over 32-bit ids

/// Height of the node at which the paths of two leaves meet.
int meeting_level(int32_t a, int32_t b) {
  return std::bit_width(static_cast<uint32_t>(a) ^ static_cast<uint32_t>(b));
}

/// Columns [first, first + n) of one token.
void combine(const MoeCombineArgs& args, int64_t t, int64_t first, int64_t n) {
  alignas(64) float sums[kStackMax][kBlock];
  int32_t leaf[kStackMax];  // the last leaf under each partial sum
  int depth = 0;
  const auto join = [&] {
    --depth;
    cpu::add(sums[depth - 1], sums[depth], n);
    leaf[depth - 1] = leaf[depth];
  };
  const int32_t* ids = args.expert_ids.row(t);
  for (int64_t j = 0; j < args.expert_ids.shape[1]; ++j) {
    // Subtrees that meet below the new leaf's branch are complete: nothing later joins them.
    while (depth > 1 && meeting_level(leaf[depth - 2], leaf[depth - 1]) <
                            meeting_level(leaf[depth - 1], ids[j])) {
      join();
    }
    const float* row = args.rows.row(args.row_of.row(t)[j]) + first;
    if (args.wire == DType::kBF16) {
      cpu::round_to_bf16(sums[depth], row, n);
      row = sums[depth];
    }
    cpu::scale(sums[depth], row, args.weights.row(t)[j], n);
    leaf[depth++] = ids[j];
  }
  while (depth > 1) join();
  cpu::add(args.y.row(t) + first, sums[0], n);
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
