#include "ops/kv_digest/kv_digest.h"

#include "device/dispatch.h"

namespace tandem::ops {

Result<void> kv_digest_cpu(Stream& stream, const KvDigestArgs& args);

Result<void> kv_digest(Stream& stream, const KvDigestArgs& args) {
  const auto stretches = [&](int64_t tokens) {
    return (args.end_token - 1) / tokens - args.first_token / tokens + 1;
  };
  TANDEM_CHECK(args.pool.rank == 4, "a pool is [pages, kv_heads, page_tokens, head_dim]");
  TANDEM_CHECK(args.first_token >= 0 && args.first_token < args.end_token, "a slice has tokens");
  TANDEM_CHECK(args.first_head >= 0 && args.heads_count > 0 &&
                   args.first_head + args.heads_count <= args.pool.shape[1],
               "heads are of the pool");
  TANDEM_CHECK(args.slice_tokens > 0, "a page has tokens");
  TANDEM_CHECK(args.pages.shape[0] == stretches(args.pool.shape[2]), "pages cover the tokens");
  TANDEM_CHECK(args.digests.shape[0] == stretches(args.slice_tokens), "one digest per slice");
  return dispatch("kv_digest", stream, args, kv_digest_cpu);
}

}  // namespace tandem::ops
