// Contract   y[r] = x[row_source[r]] W_e^T for the rows of every expert, see expert_linear.h
// Shapes     any rows per expert, zero included
// Work       2 * rows * in * out flop; reads the weights of experts that have rows once
// Roof       few rows per expert: memory; many: the matrix path's peak
// Plan       the rows are gathered once, then tasks are (expert with rows, panel); inside, as many
//            rows at a time as the kernel's registers hold
// Measured   see docs/performance.md (tandem bench engine)
// Reference  ../linear/linear_test.cc
#include <algorithm>

#include "ops/expert_linear/expert_linear.h"
#include "ops/linear/panel_layout.h"
#include "ops/linear/rows_cpu.h"

namespace tandem::ops {

Result<void> expert_linear_cpu(Stream& stream_any, const ExpertLinearArgs& args) {
  cpu::CpuStream& stream = cpu::cpu_stream(stream_any);
  const LinearSpec& spec = args.weights->spec();
  const PanelLayout layout(spec);

  // Scratch: the rounded rows, then the list of experts that have some.
  const LeftRows::Source source{.x = args.x, .rows = args.row_source};
  const size_t row_bytes = (LeftRows::scratch_bytes(spec.dtype, source) + 63) / 64 * 64;
  std::byte* scratch =
      stream.scratch(row_bytes + static_cast<size_t>(spec.stack) * sizeof(int32_t));
  const LeftRows rows(stream, spec.dtype, source, scratch);
  auto* active = reinterpret_cast<int32_t*>(scratch + row_bytes);
  int64_t active_count = 0;
  for (int64_t e = 0; e < spec.stack; ++e) {
    if (args.expert_offsets[e] < args.expert_offsets[e + 1]) {
      active[active_count++] = static_cast<int32_t>(e);
    }
  }

  const cpu::PanelKernel kernel = cpu::panel_kernel(stream.path(), spec.dtype);
  stream.team().parallel_for(active_count * layout.panels, [&](int64_t task, int) {
    const int64_t e = active[task / layout.panels];
    const int64_t p = task % layout.panels;
    const int64_t first = args.expert_offsets[e];
    const int64_t column = p * PanelLayout::kColumns;
    const int64_t columns = std::min(PanelLayout::kColumns, spec.out_features - column);
    cpu::multiply_panel(kernel, rows.at(first), args.expert_offsets[e + 1] - first,
                        args.weights->storage().as<const std::byte>() + e * layout.matrix_bytes() +
                            p * layout.panel_bytes(),
                        spec.in_features, [&](int64_t r, const float* sums) {
                          std::copy_n(sums, columns, args.y.row(first + r) + column);
                        });
  });
  return {};
}

}  // namespace tandem::ops
