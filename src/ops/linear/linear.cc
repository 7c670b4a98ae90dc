#include "ops/linear/linear.h"

#include "device/dispatch.h"

namespace tandem::ops {

Result<void> linear_cpu(Stream& stream, const LinearArgs& args);

Result<void> linear(Stream& stream, const LinearArgs& args) {
  const LinearSpec& spec = args.weight->spec();
  TANDEM_CHECK(spec.stack == 1, "linear takes one matrix");
  TANDEM_CHECK(args.x.shape[1] == spec.in_features, "x has in_features columns");
  TANDEM_CHECK(args.y.shape[1] == spec.out_features, "y has out_features columns");
  TANDEM_CHECK(args.x.shape[0] == args.y.shape[0], "one output row per input row");
  return dispatch("linear", stream, args, linear_cpu);
}

}  // namespace tandem::ops
