// Contract   digests[i] = XXH3-64 of slice i, see kv_digest.h
// Shapes     any page and slice sizes, any heads of the pool
// Work       reads every byte once: 2 * heads * head_dim bytes a token in bf16
// Roof       memory; XXH3 itself runs at several times the bandwidth of one core
// Plan       a task per slice; a head's run of tokens within a page is one piece of input
// Measured   12 GB per second of processor time on one core at 4272c89 (kv_digest_bench.cc, 2 cores
//            shared with other work)
// Reference  kv_digest_test.cc
#define XXH_STATIC_LINKING_ONLY  // the state lies on the stack
#include <xxhash.h>

#include <algorithm>

#include "cpu/cpu_device.h"
#include "ops/kv_digest/kv_digest.h"

namespace tandem::ops {
namespace {

uint64_t digest_of(const KvDigestArgs& args, int64_t first_token, int64_t end_token) {
  const auto [pages_count, kv_heads, page_tokens, head_dim] = args.pool.shape;
  const auto* bytes = static_cast<const std::byte*>(args.pool.data);
  const int64_t row_bytes = head_dim * static_cast<int64_t>(dtype_bytes(args.pool.dtype));
  const int64_t first_page = args.first_token / page_tokens;
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (int64_t head = args.first_head; head < args.first_head + args.heads_count; ++head) {
    for (int64_t token = first_token; token < end_token;) {
      const int64_t page = args.pages[token / page_tokens - first_page];
      TANDEM_DCHECK(page >= 0 && page < pages_count, "page outside the pool");
      const int64_t offset = token % page_tokens;
      const int64_t count = std::min(page_tokens - offset, end_token - token);
      const int64_t row = (page * kv_heads + head) * page_tokens + offset;
      XXH3_64bits_update(&state, bytes + row * row_bytes, static_cast<size_t>(count * row_bytes));
      token += count;
    }
  }
  return XXH3_64bits_digest(&state);
}

}  // namespace

Result<void> kv_digest_cpu(Stream& stream, const KvDigestArgs& args) {
  const int64_t first_slice = args.first_token / args.slice_tokens;
  cpu::cpu_stream(stream).team().parallel_for(args.digests.shape[0], [&](int64_t i, int) {
    const int64_t begin = (first_slice + i) * args.slice_tokens;
    args.digests[i] = digest_of(args, std::max(begin, args.first_token),
                                std::min(begin + args.slice_tokens, args.end_token));
  });
  return {};
}

}  // namespace tandem::ops
