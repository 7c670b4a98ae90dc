#include "ops/expert_linear/expert_linear.h"

#include "device/dispatch.h"

namespace tandem::ops {

Result<void> expert_linear_cpu(Stream& stream, const ExpertLinearArgs& args);

Result<void> expert_linear(Stream& stream, const ExpertLinearArgs& args) {
  const LinearSpec& spec = args.weights->spec();
  TANDEM_CHECK(args.x.shape[1] == spec.in_features, "x has in_features columns");
  TANDEM_CHECK(args.y.shape[1] == spec.out_features, "y has out_features columns");
  TANDEM_CHECK(args.expert_offsets.shape[0] == spec.stack + 1, "one range of rows per expert");
  TANDEM_CHECK(spec.partition == 0, "an expert's contraction is not cut");
  return dispatch("expert_linear", stream, args, expert_linear_cpu);
}

}  // namespace tandem::ops
