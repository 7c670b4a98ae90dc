#include "ops/qk_norm_rope/qk_norm_rope.h"

#include "device/dispatch.h"

namespace tandem::ops {

Result<void> qk_norm_rope_cpu(Stream& stream, const QkNormRopeArgs& args);

Result<void> qk_norm_rope(Stream& stream, const QkNormRopeArgs& args) {
  TANDEM_CHECK(args.qkv.shape[1] == (args.heads + 2 * args.kv.kv_heads()) * args.kv.head_dim(),
               "q, k and v side by side");
  TANDEM_CHECK(args.cos_sin.shape[1] <= args.kv.head_dim(), "rotated dimensions are of the head");
  return dispatch("qk_norm_rope", stream, args, qk_norm_rope_cpu);
}

}  // namespace tandem::ops
