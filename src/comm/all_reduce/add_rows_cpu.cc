// Contract   y = sum of N rows in the binary tree over their index, add_rows.h
// Work       reads N rows and writes one; memory bound
// Plan       blocks of 512 columns on the stream's team; rows are added where they lie, and only
//            the last addition of a block writes to y, which may be one of the rows
// Reference  a plain recursive sum, all_reduce_test.cc
#include <algorithm>

#include "comm/all_reduce/add_rows.h"
#include "cpu/cpu_device.h"
#include "cpu/tree_sum.h"

namespace tandem::comm {

Result<void> add_rows_cpu(Stream& stream, const AddRowsArgs& args) {
  constexpr int64_t kBlock = cpu::TreeSum::kColumnsMax;
  const auto n = static_cast<int64_t>(args.y.size());
  cpu::cpu_stream(stream).team().parallel_for((n + kBlock - 1) / kBlock, [&](int64_t block, int) {
    const int64_t first = block * kBlock;
    const int64_t columns = std::min(kBlock, n - first);
    cpu::TreeSum sum(columns);
    for (size_t row = 0; row < args.rows.size(); ++row) {
      sum.add_leaf(static_cast<int32_t>(row), args.rows[row] + first);
    }
    sum.finish(args.y.data() + first);
  });
  return {};
}

}  // namespace tandem::comm
