// Contract   q/k norm, rotation and the write of K and V into the pool, see qk_norm_rope.h
// Shapes     any tokens and heads; up to head_dim rotated dimensions, an even number
// Work       reads qkv once, writes q, K and V once
// Roof       memory
// Plan       a task per token: each head is normed and rotated in place, then written to its page
// Measured   not alone yet; its part of a step: tandem bench engine --ops
// Reference  qk_norm_rope_test.cc
#include <algorithm>
#include <cmath>

#include "cpu/cpu_device.h"
#include "cpu/vector.h"
#include "ops/qk_norm_rope/qk_norm_rope.h"

namespace tandem::ops {
namespace {

/// One head of one page at one token: head_dim elements.
std::byte* pool_row(const AnyTensor& pool, int64_t slot, int64_t head) {
  const int64_t page_tokens = pool.shape[2];
  const int64_t row =
      ((slot / page_tokens) * pool.shape[1] + head) * page_tokens + slot % page_tokens;
  return static_cast<std::byte*>(pool.data) +
         row * pool.shape[3] * static_cast<int64_t>(dtype_bytes(pool.dtype));
}

void write_row(const AnyTensor& pool, int64_t slot, int64_t head, const float* x) {
  std::byte* at = pool_row(pool, slot, head);
  if (pool.dtype == DType::kF32) {
    std::copy_n(x, pool.shape[3], reinterpret_cast<float*>(at));
  } else {
    cpu::to_bf16(reinterpret_cast<bf16*>(at), x, pool.shape[3]);
  }
}

}  // namespace

Result<void> qk_norm_rope_cpu(Stream& stream, const QkNormRopeArgs& args) {
  const int64_t head_dim = args.kv.head_dim();
  const int64_t kv_heads = args.kv.kv_heads();
  const int64_t half = args.cos_sin.shape[1] / 2;
  cpu::cpu_stream(stream).team().parallel_for(args.qkv.shape[0], [&](int64_t t, int) {
    const float* cos = args.cos_sin.row(args.positions[t]);
    const auto norm_and_rotate = [&](float* x, const float* weight) {
      const float mean = cpu::sum_of_squares(x, head_dim) / static_cast<float>(head_dim);
      cpu::scale_row(x, x, 1.0f / std::sqrt(mean + args.eps), weight, head_dim);
      cpu::rotate_pairs(x, cos, cos + half, half);
    };
    float* x = args.qkv.row(t);
    for (int64_t h = 0; h < args.heads; ++h, x += head_dim) {
      norm_and_rotate(x, args.q_norm.data);
    }
    for (int64_t h = 0; h < kv_heads; ++h, x += head_dim) {
      norm_and_rotate(x, args.k_norm.data);
      write_row(args.kv.k, args.slots[t], h, x);
    }
    for (int64_t h = 0; h < kv_heads; ++h, x += head_dim) {
      write_row(args.kv.v, args.slots[t], h, x);
    }
  });
  return {};
}

}  // namespace tandem::ops
