// Contract   y = x W^T (+ y), see linear.h
// Shapes     any tokens, in_features, out_features; partition even
// Work       2 * tokens * in * out flop; reads W once per 128 tokens
// Roof       one token: memory; many: the matrix path's peak
// Plan       tasks are (block of rows that stays in L2, group of panels of 64 outputs), see
//            task_blocks_cpu.h; inside, as many rows at a time as the kernel's registers hold
//            (cpu/panel.h)
// Measured   see docs/performance.md (tandem bench engine)
// Reference  linear_test.cc
#include <algorithm>
#include <bit>

#include "ops/linear/linear.h"
#include "ops/linear/panel_layout.h"
#include "ops/linear/rows_cpu.h"
#include "ops/linear/task_blocks_cpu.h"

namespace tandem::ops {
namespace {

/// Sums tiles, fed in ascending order of their index, in one binary tree: the shape of a binary
/// counter. What is left at the end joins from the smallest up.
class TileTree {
 public:
  static constexpr int kTileFloats = cpu::kPanelRowsMax * cpu::kPanelColumns;
  static constexpr int kLevelsMax = 14;  // up to 16,383 parts: 2 M columns cut at 128

  float* next() { return tiles_[depth_]; }
  void push(int64_t floats) {
    TANDEM_DCHECK(depth_ + 1 < kLevelsMax, "more parts than the tree holds");
    ++depth_;
    ++count_;
    for (int joins = std::countr_zero(count_); joins > 0; --joins) join(floats);
  }
  const float* finish(int64_t floats) {
    while (depth_ > 1) join(floats);
    return tiles_[0];
  }

 private:
  void join(int64_t floats) {
    --depth_;
    cpu::add(tiles_[depth_ - 1], tiles_[depth_], floats);
  }
  alignas(64) float tiles_[kLevelsMax][kTileFloats];
  int depth_ = 0;
  uint32_t count_ = 0;
};

/// Rows [first, last) of a panel whose contraction is cut into parts.
void multiply_cut(const LinearSpec& spec, cpu::PanelKernel kernel, const PanelLayout& layout,
                  const LeftRows& rows, const std::byte* panel, const cpu::PanelOutput& out,
                  int64_t first, int64_t last) {
  for (; first < last; first += kernel.rows_max) {
    const auto count = static_cast<int>(std::min<int64_t>(kernel.rows_max, last - first));
    const int64_t floats = count * cpu::kPanelColumns;
    out.prefetch(first, count);
    TileTree tree;
    for (int64_t k = 0; k < spec.in_features; k += spec.partition) {
      kernel.run(rows.at(first, k), count, panel + layout.step_bytes(k),
                 std::min(spec.partition, spec.in_features - k), tree.next());
      tree.push(floats);
    }
    const float* sums = tree.finish(floats);
    for (int r = 0; r < count; ++r) out(first + r, sums + r * cpu::kPanelColumns);
  }
}

}  // namespace

Result<void> linear_cpu(Stream& stream_any, const LinearArgs& args) {
  cpu::CpuStream& stream = cpu::cpu_stream(stream_any);
  const LinearSpec& spec = args.weight->spec();
  const PanelLayout layout(spec);
  const int64_t tokens = args.x.shape[0];
  const LeftRows::Source source{.x = args.x};
  const LeftRows rows(stream, spec.dtype, source,
                      stream.scratch(LeftRows::scratch_bytes(spec.dtype, source)));
  const cpu::PanelKernel kernel = cpu::panel_kernel(stream.path(), spec.dtype);
  const bool is_cut = spec.partition != 0 && spec.partition < spec.in_features;
  const int64_t row_blocks = TaskBlocks::row_blocks(tokens);
  const TaskBlocks blocks(tokens, row_blocks, layout.panels, stream.team().threads_count());

  stream.team().parallel_for(blocks.groups * row_blocks, [&](int64_t task, int) {
    const int64_t first = task % row_blocks * TaskBlocks::kRowsPerBlock;
    const int64_t last = std::min(tokens, first + TaskBlocks::kRowsPerBlock);
    const int64_t first_panel = task / row_blocks * blocks.panels_per_task;
    const int64_t last_panel = std::min(layout.panels, first_panel + blocks.panels_per_task);
    for (int64_t p = first_panel; p < last_panel; ++p) {
      const std::byte* panel =
          args.weight->storage().as<const std::byte>() + p * layout.panel_bytes();
      const int64_t column = p * PanelLayout::kColumns;
      const cpu::PanelOutput out{args.y.data + column, args.y.row_stride,
                                 std::min(PanelLayout::kColumns, spec.out_features - column),
                                 args.accumulate};
      if (is_cut) {
        multiply_cut(spec, kernel, layout, rows, panel, out, first, last);
      } else {
        cpu::multiply_panel(kernel, rows.at(first), last - first, panel, spec.in_features,
                            out.from(first));
      }
    }
  });
  return {};
}

}  // namespace tandem::ops
