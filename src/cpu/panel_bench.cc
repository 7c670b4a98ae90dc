// One core's panel products by rows, hot (one panel again and again) and streaming (64 MiB of
// panels, each once), on every matrix path of this machine.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "cpu/panel.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kContraction = 2048;
constexpr int64_t kPanelBytes = kContraction * kPanelColumns * 2;
constexpr int64_t kStreamPanels = 256;

void run(benchmark::State& state, MatrixPath path, int64_t rows_count, int64_t panels) {
  const PanelKernel kernel = panel_kernel(path, DType::kBF16);
  std::vector<uint16_t> panel(static_cast<size_t>(panels * kPanelBytes) / 2, 0x3c01);
  std::vector<uint16_t> rows(static_cast<size_t>(rows_count * (kContraction + 32)), 0x3f81);
  const PanelRows left{rows.data(), (kContraction + 32) * 2};
  int64_t next = 0;
  float sum = 0;
  for (auto _ : state) {
    multiply_panel(kernel, left, rows_count, panel.data() + next * kPanelBytes / 2, kContraction,
                   [&](int64_t, const float* sums) { sum += sums[0]; });
    next = (next + 1) % panels;
  }
  benchmark::DoNotOptimize(sum);
  state.counters["flop"] =
      benchmark::Counter(2.0 * static_cast<double>(rows_count * kPanelColumns * kContraction),
                         benchmark::Counter::kIsIterationInvariantRate);
  state.SetBytesProcessed(state.iterations() * kPanelBytes);
}

const int registered = [] {
  for (MatrixPath path : usable_matrix_paths()) {
    for (int64_t rows : {1, 6, 16, 32, 96}) {
      for (int64_t panels : {int64_t{1}, kStreamPanels}) {
        const std::string name = std::string(matrix_path_name(path)) + "/rows " +
                                 std::to_string(rows) + (panels == 1 ? "/hot" : "/streaming");
        benchmark::RegisterBenchmark(
            name.c_str(), [=](benchmark::State& state) { run(state, path, rows, panels); });
      }
    }
  }
  return 0;
}();

}  // namespace
}  // namespace tandem::cpu
