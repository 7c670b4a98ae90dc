// Contract   y[r] = x[row_source[r]] W_e^T for the rows of every expert, see expert_linear.h
// Shapes     any rows per expert, zero included
// Work       2 * rows * in * out flop; reads the weights of experts that have rows once per 128
// Roof       few rows per expert: memory; many: the matrix path's peak
// Plan       the rows are gathered once, then tasks are (expert, block of its rows, group of
// panels),
//            see ../linear/task_blocks_cpu.h; inside, as many rows at a time as the kernel's
//            registers hold
// Measured   see docs/performance.md (tandem bench engine)
// Reference  ../linear/linear_test.cc
#include <algorithm>

#include "ops/expert_linear/expert_linear.h"
#include "ops/linear/panel_layout.h"
#include "ops/linear/rows_cpu.h"
#include "ops/linear/task_blocks_cpu.h"

namespace tandem::ops {
namespace {

/// Rows [first, last) of one expert.
struct ExpertRows {
  int32_t expert;
  int32_t first;
  int32_t last;
};

}  // namespace

Result<void> expert_linear_cpu(Stream& stream_any, const ExpertLinearArgs& args) {
  cpu::CpuStream& stream = cpu::cpu_stream(stream_any);
  const LinearSpec& spec = args.weights->spec();
  const PanelLayout layout(spec);

  // Scratch: the rounded rows, then every block of rows of every expert.
  const LeftRows::Source source{.x = args.x, .rows = args.row_source};
  const size_t row_bytes = (LeftRows::scratch_bytes(spec.dtype, source) + 63) / 64 * 64;
  const int64_t blocks_max = spec.stack + TaskBlocks::row_blocks(source.count());
  std::byte* scratch =
      stream.scratch(row_bytes + static_cast<size_t>(blocks_max) * sizeof(ExpertRows));
  const LeftRows rows(stream, spec.dtype, source, scratch);
  auto* row_blocks = reinterpret_cast<ExpertRows*>(scratch + row_bytes);
  int32_t row_blocks_count = 0;
  int32_t rows_max = 0;
  for (int32_t e = 0; e < spec.stack; ++e) {
    const int32_t last = args.expert_offsets[e + 1];
    rows_max = std::max(rows_max, last - args.expert_offsets[e]);
    for (int32_t first = args.expert_offsets[e]; first < last;) {
      const int32_t end = std::min<int32_t>(last, first + TaskBlocks::kRowsPerBlock);
      row_blocks[row_blocks_count++] = {e, first, end};
      first = end;
    }
  }

  const cpu::PanelKernel kernel = cpu::panel_kernel(stream.path(), spec.dtype);
  const TaskBlocks blocks(rows_max, row_blocks_count, layout.panels, stream.team().threads_count());
  stream.team().parallel_for(row_blocks_count * blocks.groups, [&](int64_t task, int) {
    const ExpertRows& block = row_blocks[task / blocks.groups];
    const int64_t first_panel = task % blocks.groups * blocks.panels_per_task;
    const int64_t last_panel = std::min(layout.panels, first_panel + blocks.panels_per_task);
    for (int64_t p = first_panel; p < last_panel; ++p) {
      const int64_t column = p * PanelLayout::kColumns;
      const cpu::PanelOutput out{args.y.row(block.first) + column, args.y.row_stride,
                                 std::min(PanelLayout::kColumns, spec.out_features - column)};
      cpu::multiply_panel(kernel, rows.at(block.first), block.last - block.first,
                          args.weights->storage().as<const std::byte>() +
                              block.expert * layout.matrix_bytes() + p * layout.panel_bytes(),
                          spec.in_features, out);
    }
  });
  return {};
}

}  // namespace tandem::ops
