#include "comm/expert_combine/weighted_rows.h"

#include "device/dispatch.h"

namespace tandem::comm {

Result<void> weighted_rows_cpu(Stream& stream, const WeightedRowsArgs& args);

Result<void> weighted_rows(Stream& stream, const WeightedRowsArgs& args) {
  TANDEM_CHECK(args.expert_ids.shape == args.weights.shape, "one weight per pair");
  TANDEM_CHECK(args.expert_ids.shape == args.row_of.shape, "one row per pair");
  TANDEM_CHECK(args.row_type == DType::kF32 || args.row_type == args.wire,
               "rows travel as f32 or bf16");
  return dispatch("weighted_rows", stream, args, weighted_rows_cpu);
}

}  // namespace tandem::comm
