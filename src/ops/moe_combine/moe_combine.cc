#include "ops/moe_combine/moe_combine.h"

#include "device/dispatch.h"

namespace tandem::ops {

Result<void> moe_combine_cpu(Stream& stream, const MoeCombineArgs& args);

Result<void> moe_combine(Stream& stream, const MoeCombineArgs& args) {
  TANDEM_CHECK(args.expert_ids.shape == args.weights.shape, "one weight per pair");
  TANDEM_CHECK(args.expert_ids.shape == args.row_of.shape, "one row per pair");
  TANDEM_CHECK(args.rows.shape[1] == args.y.shape[1], "rows are as wide as y");
  TANDEM_CHECK(args.wire == DType::kF32 || args.wire == DType::kBF16, "rows travel as f32 or bf16");
  return dispatch("moe_combine", stream, args, moe_combine_cpu);
}

}  // namespace tandem::ops
