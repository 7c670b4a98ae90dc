#include "apps/engine_work.h"

#include <cmath>

namespace tandem::apps {
namespace {

/// Elements of a layer's matrices that every token uses, and of one expert.
struct LayerElements {
  double attention;
  double router;  // f32 always
  double mlp;     // dense
  double expert;
};

LayerElements elements_of(const model::ModelConfig& c, bool moe) {
  const auto hidden = static_cast<double>(c.hidden_size);
  const auto head_dim = static_cast<double>(c.head_dim);
  const auto heads = static_cast<double>(c.heads);
  const auto kv_heads = static_cast<double>(c.kv_heads);
  return {.attention = hidden * head_dim * (2 * heads + 2 * kv_heads),
          .router = moe ? hidden * static_cast<double>(c.experts_count) : 0.0,
          .mlp = moe ? 0.0 : 3 * hidden * static_cast<double>(c.intermediate_size),
          .expert = moe ? 3 * hidden * static_cast<double>(c.moe_intermediate_size) : 0.0};
}

}  // namespace

double EngineWork::prefill_flops(int64_t prompt) const {
  const auto tokens = static_cast<double>(prompt);
  const double pairs = tokens * (tokens + 1) / 2;
  double flops = 2.0 * static_cast<double>(config.vocab_size * config.hidden_size);
  for (const bool moe : config.layer_is_moe) {
    const LayerElements e = elements_of(config, moe);
    flops +=
        2 * tokens *
        (e.attention + e.router + e.mlp + e.expert * static_cast<double>(config.experts_per_token));
    flops += 4 * pairs * static_cast<double>(config.heads * config.head_dim);
  }
  return flops;
}

double EngineWork::decode_bytes(int64_t batch, double context) const {
  const auto element = static_cast<double>(dtype_bytes(dtype));
  const auto sequences = static_cast<double>(batch);
  double bytes = element * static_cast<double>(config.vocab_size * config.hidden_size);
  for (const bool moe : config.layer_is_moe) {
    const LayerElements e = elements_of(config, moe);
    bytes += element * (e.attention + e.mlp) + sizeof(float) * e.router;
    if (moe) {
      const auto experts = static_cast<double>(config.experts_count);
      const double missed = 1 - static_cast<double>(config.experts_per_token) / experts;
      bytes += element * e.expert * experts * (1 - std::pow(missed, sequences));
    }
    bytes +=
        element * sequences * context * 2 * static_cast<double>(config.kv_heads * config.head_dim);
  }
  return bytes;
}

}  // namespace tandem::apps
