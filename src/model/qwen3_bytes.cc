// The memory that Qwen3::load takes, counted from the same specs.
#include "model/qwen3.h"
#include "model/qwen3_specs.h"
#include "model/rope.h"

namespace tandem::model {

WeightBytes Qwen3::bytes_needed(const Shard& shard, const Options& options) {
  using ops::PackedLinear;
  const ModelConfig& c = shard.config;
  const Qwen3Specs specs(shard, options.compute);
  WeightBytes bytes;
  bytes[WeightPart::kEmbedding] =
      static_cast<size_t>(shard.vocabulary.count() * c.hidden_size) * dtype_bytes(options.compute);
  bytes[WeightPart::kHead] = PackedLinear::bytes_needed(specs.lm_head);
  bytes[WeightPart::kNorms] = static_cast<size_t>(c.hidden_size) * sizeof(float);
  bytes[WeightPart::kRotary] = rope_table_elements(c.rope, options.positions_max) * sizeof(float);
  for (const bool is_moe : c.layer_is_moe) {
    bytes[WeightPart::kNorms] +=
        static_cast<size_t>(2 * (c.hidden_size + c.head_dim)) * sizeof(float);
    bytes[WeightPart::kAttention] +=
        PackedLinear::bytes_needed(specs.qkv) + PackedLinear::bytes_needed(specs.o);
    if (is_moe) {
      bytes[WeightPart::kRouter] += PackedLinear::bytes_needed(specs.router);
      bytes[WeightPart::kExperts] += ExpertStack::bytes_needed(specs);
    } else {
      bytes[WeightPart::kDenseMlp] += PackedLinear::bytes_needed(specs.dense_gate_up) +
                                      PackedLinear::bytes_needed(specs.dense_down);
    }
  }
  if (shard.layout.rebalances_experts) {
    bytes[WeightPart::kExperts] += ExpertStack::bytes_needed(specs);  // the spare stack
  }
  return bytes;
}

}  // namespace tandem::model
