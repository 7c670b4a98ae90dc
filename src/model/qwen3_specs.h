#pragma once

#include "device/dtype.h"
#include "model/sharding.h"
#include "ops/linear/packed_linear.h"

namespace tandem::model {

/// The packed matrices of a Qwen3 on one rank, before any memory: the loader creates what this
/// lists and the memory plan counts it, so they cannot disagree. A config without experts, or
/// without dense layers, has empty specs for them that no layer uses.
struct Qwen3Specs {
  Qwen3Specs(const Shard& shard, DType compute);

  ops::LinearSpec qkv;             // [(heads + 2 * kv_heads) * head_dim, hidden]
  ops::LinearSpec o;               // [hidden, heads * head_dim]
  ops::LinearSpec dense_gate_up;   // [2 * intermediate, hidden]
  ops::LinearSpec dense_down;      // [hidden, intermediate]
  ops::LinearSpec router;          // [experts, hidden], f32
  ops::LinearSpec expert_gate_up;  // experts x [2 * moe_intermediate, hidden]
  ops::LinearSpec expert_down;     // experts x [hidden, moe_intermediate]
  ops::LinearSpec lm_head;         // [vocabulary, hidden]
};

}  // namespace tandem::model
