#pragma once

#include "base/result.h"
#include "device/device.h"
#include "device/tensor.h"
#include "ops/attention/kv_pool.h"

namespace tandem::ops {

/// Absolute token positions at which every sequence's keys are cut. Each part is a softmax of its
/// own; parts are merged in ascending order. Part of the numerics contract.
inline constexpr int64_t kAttentionSplitTokens = 256;

/// Query heads per kv head at most, four times what released models have; configs are held to it.
inline constexpr int64_t kAttentionGroupMax = 64;

/// Causal grouped-query attention over paged keys and values, for prefill chunks and decode alike.
///
/// Sequence s has query rows query_start[s] .. query_start[s+1]; its last query row sits at
/// position kv_tokens[s] - 1, and row i sees positions 0 .. its own. Query head h reads kv head
/// h / (heads / kv_heads). Keys and values of this step are already in the pool.
///   score = scale * q.k;  out = softmax(score) V
/// q and the probabilities are rounded to the pool's dtype, sums are f32. A row's result does not
/// depend on the chunk it came in, on its neighbours or on the page size; what a later position
/// holds, infinities and NaN included, never reaches it. A NaN that it sees makes it NaN.
struct AttentionArgs {
  TensorView<const float, 2> q;  ///< [tokens, heads * head_dim], normed and rotated; may be strided
  KvPool kv;
  int64_t heads = 0;  ///< a multiple of the kv heads, up to kAttentionGroupMax times
  float scale = 0.0f;
  TensorView<const int32_t, 1> query_start;  ///< [sequences + 1], ascending from 0
  TensorView<const int32_t, 1> kv_tokens;    ///< [sequences], >= its query rows
  TensorView<const int32_t, 2> page_table;   ///< [sequences, pages_max]
  TensorView<float, 2> out;                  ///< [tokens, heads * head_dim]
};

Result<void> attention(Stream& stream, const AttentionArgs& args);

}  // namespace tandem::ops
