#include "ops/silu_mul/silu_mul.h"

#include "device/dispatch.h"

namespace tandem::ops {

Result<void> silu_mul_cpu(Stream& stream, const SiluMulArgs& args);

Result<void> silu_mul(Stream& stream, const SiluMulArgs& args) {
  TANDEM_CHECK(args.gate_up.shape[0] == args.out.shape[0], "one output row per input row");
  TANDEM_CHECK(args.gate_up.shape[1] == 2 * args.out.shape[1], "gate and up side by side");
  return dispatch("silu_mul", stream, args, silu_mul_cpu);
}

}  // namespace tandem::ops
