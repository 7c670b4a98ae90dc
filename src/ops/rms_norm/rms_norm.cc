#include "ops/rms_norm/rms_norm.h"

#include "device/dispatch.h"

namespace tandem::ops {

Result<void> rms_norm_cpu(Stream& stream, const RmsNormArgs& args);

Result<void> rms_norm(Stream& stream, const RmsNormArgs& args) {
  TANDEM_CHECK(args.x.shape == args.out.shape, "the output has the shape of x");
  TANDEM_CHECK(args.weight.shape[0] == args.x.shape[1], "one weight per column");
  return dispatch("rms_norm", stream, args, rms_norm_cpu);
}

}  // namespace tandem::ops
