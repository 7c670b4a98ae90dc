// Contract   y = x W^T (+ y), see linear.h
// Shapes     any tokens, in_features, out_features; partition even
// Work       2 * tokens * in * out flop; reads W once per 96 tokens
// Roof       one token: memory; many: the matrix path's peak
// Plan       tasks are (panel of 64 outputs, block of 96 rows), a panel's blocks side by side so
//            that it stays in L2; inside, as many rows at a time as the
//            kernel's registers hold (cpu/panel.h)
// Measured   see docs/performance.md (tandem bench engine)
// Reference  linear_test.cc
#include <algorithm>
#include <bit>

#include "ops/linear/linear.h"
#include "ops/linear/panel_layout.h"
#include "ops/linear/rows_cpu.h"

namespace tandem::ops {
namespace {

/// 96 bf16 rows of 2048 are 384 KiB: with the panel (256 KiB) they fit a 1 MiB L2.
constexpr int64_t kRowsPerTask = 96;

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

struct Panel {
  const std::byte* data;
  int64_t first_column;
  int64_t columns;
};

void store(const LinearArgs& args, const Panel& panel, int64_t row, const float* sums) {
  float* out = args.y.row(row) + panel.first_column;
  if (args.accumulate) {
    for (int64_t c = 0; c < panel.columns; ++c) out[c] += sums[c];
  } else {
    std::copy_n(sums, panel.columns, out);
  }
}

/// Rows [first, last) of a panel whose contraction is cut into parts.
void multiply_cut(const LinearArgs& args, cpu::PanelKernel kernel, const PanelLayout& layout,
                  const LeftRows& rows, const Panel& panel, int64_t first, int64_t last) {
  const LinearSpec& spec = args.weight->spec();
  for (; first < last; first += kernel.rows_max) {
    const auto count = static_cast<int>(std::min<int64_t>(kernel.rows_max, last - first));
    const int64_t floats = count * cpu::kPanelColumns;
    TileTree tree;
    for (int64_t k = 0; k < spec.in_features; k += spec.partition) {
      kernel.run(rows.at(first, k), count, panel.data + layout.step_bytes(k),
                 std::min(spec.partition, spec.in_features - k), tree.next());
      tree.push(floats);
    }
    const float* sums = tree.finish(floats);
    for (int r = 0; r < count; ++r) {
      store(args, panel, first + r, sums + r * cpu::kPanelColumns);
    }
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
  const int64_t blocks = (tokens + kRowsPerTask - 1) / kRowsPerTask;

  stream.team().parallel_for(layout.panels * blocks, [&](int64_t task, int) {
    const int64_t p = task / blocks;
    const Panel panel{
        args.weight->storage().as<const std::byte>() + p * layout.panel_bytes(),
        p * PanelLayout::kColumns,
        std::min(PanelLayout::kColumns, spec.out_features - p * PanelLayout::kColumns)};
    const int64_t first = task % blocks * kRowsPerTask;
    const int64_t last = std::min(tokens, first + kRowsPerTask);
    if (spec.partition != 0 && spec.partition < spec.in_features) {
      multiply_cut(args, kernel, layout, rows, panel, first, last);
    } else {
      cpu::multiply_panel(
          kernel, rows.at(first), last - first, panel.data, spec.in_features,
          [&](int64_t r, const float* sums) { store(args, panel, first + r, sums); });
    }
  });
  return {};
}

}  // namespace tandem::ops
