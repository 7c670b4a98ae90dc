#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem::ops {

/// How a product of rows and panels is cut into tasks: blocks of rows that stay in a core's L2
/// while several panels pass by. Few rows go with one panel per task: nothing would be reused, and
/// small tasks end together.
struct TaskBlocks {
  /// 128 bf16 rows of 2048 are 512 KiB, half of a 1 MiB L2; a panel of them is another quarter.
  static constexpr int64_t kRowsPerBlock = 128;
  static constexpr int64_t kPanelsMax = 8;
  static constexpr int64_t kTasksPerThread = 3;  ///< so that no thread waits long for the last
  static constexpr int64_t kFewRows = 32;

  static int64_t row_blocks(int64_t rows) { return (rows + kRowsPerBlock - 1) / kRowsPerBlock; }

  /// `rows_max`: of any one matrix; `blocks`: row_blocks of all matrices together.
  TaskBlocks(int64_t rows_max, int64_t blocks, int64_t panels, int threads) {
    if (rows_max > kFewRows) {
      const int64_t room = blocks * panels / (kTasksPerThread * threads);
      panels_per_task = std::clamp<int64_t>(room, 1, kPanelsMax);
    }
    groups = (panels + panels_per_task - 1) / panels_per_task;
  }

  int64_t panels_per_task = 1;
  int64_t groups = 0;  ///< of panels
};

}  // namespace tandem::ops
