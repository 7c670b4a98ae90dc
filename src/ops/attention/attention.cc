#include "ops/attention/attention.h"

#include "device/dispatch.h"

namespace tandem::ops {

Result<void> attention_cpu(Stream& stream, const AttentionArgs& args);

Result<void> attention(Stream& stream, const AttentionArgs& args) {
  TANDEM_CHECK(args.heads % args.kv.kv_heads() == 0, "query heads share kv heads evenly");
  TANDEM_CHECK(args.heads / args.kv.kv_heads() <= kAttentionGroupMax, "query heads per kv head");
  TANDEM_CHECK(args.q.shape == args.out.shape, "one output row per query row");
  TANDEM_CHECK(args.q.shape[1] == args.heads * args.kv.head_dim(), "a row holds all heads");
  TANDEM_CHECK(args.query_start.shape[0] == args.kv_tokens.shape[0] + 1, "one range per sequence");
  return dispatch("attention", stream, args, attention_cpu);
}

}  // namespace tandem::ops
