#pragma once

#include "base/result.h"
#include "device/device.h"
#include "device/tensor.h"
#include "ops/attention/kv_pool.h"

namespace tandem::ops {

/// What happens between the fused QKV projection and attention, in one pass over the rows:
/// RMSNorm of every query and key head over head_dim, rotation of both (half-split pairs: i with
/// i + rotary_dim/2), and the write of K and V into the pool at the token's slot, rounded to its
/// dtype. Queries are changed in place; the K and V columns of qkv are left undefined.
struct QkNormRopeArgs {
  TensorView<float, 2> qkv;  ///< [tokens, (heads + 2 * kv_heads) * head_dim]: q | k | v
  int64_t heads = 0;
  TensorView<const float, 1> q_norm;  ///< [head_dim]
  TensorView<const float, 1> k_norm;  ///< [head_dim]
  float eps = 1e-6f;
  TensorView<const int32_t, 1> positions;  ///< [tokens]
  TensorView<const float, 2> cos_sin;      ///< [positions_max, rotary_dim]: cosines, then sines
  TensorView<const int32_t, 1> slots;      ///< [tokens]: page * page_tokens + offset
  KvPool kv;
};

Result<void> qk_norm_rope(Stream& stream, const QkNormRopeArgs& args);

}  // namespace tandem::ops
