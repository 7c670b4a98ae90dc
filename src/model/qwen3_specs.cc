#include "model/qwen3_specs.h"

namespace tandem::model {

Qwen3Specs::Qwen3Specs(const Shard& shard, DType compute) {
  const ModelConfig& c = shard.config;
  const int64_t q_rows = shard.heads.count() * c.head_dim;
  const int64_t kv_rows = shard.kv_heads.count() * c.head_dim;
  qkv = {.out_features = q_rows + 2 * kv_rows, .in_features = c.hidden_size, .dtype = compute};
  // Cut per query head: the sum that tensor parallelism would split.
  o = {.out_features = c.hidden_size,
       .in_features = q_rows,
       .dtype = compute,
       .partition = c.head_dim};
  dense_gate_up = {.out_features = 2 * shard.dense_columns.count(),
                   .in_features = c.hidden_size,
                   .dtype = compute};
  dense_down = {.out_features = c.hidden_size,
                .in_features = shard.dense_columns.count(),
                .dtype = compute,
                .partition = kDenseDownPartition};
  // Routing is decided in f32 at every compute dtype: a rounded logit would move tokens to other
  // experts, and the matrix is small.
  router = {.out_features = c.experts_count, .in_features = c.hidden_size, .dtype = DType::kF32};
  expert_gate_up = {.stack = shard.expert_slots,
                    .out_features = 2 * c.moe_intermediate_size,
                    .in_features = c.hidden_size,
                    .dtype = compute};
  expert_down = {.stack = shard.expert_slots,
                 .out_features = c.hidden_size,
                 .in_features = c.moe_intermediate_size,
                 .dtype = compute};
  lm_head = {
      .out_features = shard.vocabulary.count(), .in_features = c.hidden_size, .dtype = compute};
}

}  // namespace tandem::model
