#include "model/qwen3.h"

#include <cmath>

#include "ops/attention/attention.h"
#include "ops/embed/embed.h"
#include "ops/expert_linear/expert_linear.h"
#include "ops/group_tokens/group_tokens.h"
#include "ops/linear/linear.h"
#include "ops/moe_combine/moe_combine.h"
#include "ops/qk_norm_rope/qk_norm_rope.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/route/route.h"
#include "ops/silu_mul/silu_mul.h"

namespace tandem::model {
namespace {

TensorView<const float, 1> vector_of(const Buffer& buffer, int64_t n) {
  return TensorView<const float, 1>::make(buffer.as<const float>(), {n});
}

}  // namespace

Qwen3::Qwen3(Shard shard, Options options) : shard_(std::move(shard)), options_(options) {}

Result<void> Qwen3::forward(Stream& stream, const StepInput& input, std::span<const ops::KvPool> kv,
                            Activations& a) const {
  const ModelConfig& c = shard_.config;
  const int64_t tokens = input.tokens.shape[0];
  const int64_t rows = input.logits_rows.shape[0];
  TANDEM_CHECK(kv.size() == layers_.size(), "one KV pool per layer");

  const AnyTensor table{embedding_.data(), options_.compute, 2, {c.vocab_size, c.hidden_size}};
  const auto residual = a.residual.head(tokens);
  TANDEM_TRY(ops::embed(stream, {.tokens = input.tokens, .table = table, .out = residual}));

  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    TANDEM_TRY(attention_block(stream, layer, input, kv[i], a));
    if (c.layer_is_moe[i]) {
      const auto expert_ids = TensorView<int32_t, 2>::make(
          a.expert_ids.row(static_cast<int64_t>(i)), {tokens, c.experts_per_token});
      TANDEM_TRY(moe_block(stream, layer, expert_ids, a));
    } else {
      TANDEM_TRY(dense_block(stream, layer, tokens, a));
    }
  }
  if (rows == 0) return {};

  // A row gather is an embedding lookup whose table is the residual stream.
  const AnyTensor hidden{residual.data, DType::kF32, 2, {tokens, c.hidden_size}};
  const auto last = a.last_hidden.head(rows);
  TANDEM_TRY(ops::embed(stream, {.tokens = input.logits_rows, .table = hidden, .out = last}));
  TANDEM_TRY(ops::rms_norm(stream, {.x = last,
                                    .weight = vector_of(final_norm_, c.hidden_size),
                                    .eps = c.rms_norm_eps,
                                    .out = last}));
  return ops::linear(stream, {.x = last, .weight = &lm_head_, .y = a.logits.head(rows)});
}

Result<void> Qwen3::attention_block(Stream& stream, const Layer& layer, const StepInput& input,
                                    const ops::KvPool& kv, Activations& a) const {
  const ModelConfig& c = shard_.config;
  const int64_t tokens = input.tokens.shape[0];
  const auto residual = a.residual.head(tokens);
  const auto normed = a.normed.head(tokens);
  const auto qkv = a.qkv.head(tokens);
  const auto out = a.attention.head(tokens);

  TANDEM_TRY(ops::rms_norm(stream, {.x = residual,
                                    .weight = vector_of(layer.attention_norm, c.hidden_size),
                                    .eps = c.rms_norm_eps,
                                    .out = normed}));
  TANDEM_TRY(ops::linear(stream, {.x = normed, .weight = &layer.qkv, .y = qkv}));
  TANDEM_TRY(ops::qk_norm_rope(
      stream, {.qkv = qkv,
               .heads = c.heads,
               .q_norm = vector_of(layer.q_norm, c.head_dim),
               .k_norm = vector_of(layer.k_norm, c.head_dim),
               .eps = c.rms_norm_eps,
               .positions = input.positions,
               .cos_sin = TensorView<const float, 2>::make(
                   cos_sin_.as<const float>(), {options_.positions_max, c.rope.rotary_dim}),
               .slots = input.slots,
               .kv = kv}));
  // The queries are the first columns of every qkv row.
  const TensorView<const float, 2> q{qkv.data, {tokens, c.heads * c.head_dim}, qkv.row_stride};
  TANDEM_TRY(ops::attention(
      stream, {.q = q,
               .kv = kv,
               .heads = c.heads,
               .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim))),
               .query_start = input.query_start,
               .kv_tokens = input.kv_tokens,
               .page_table = input.page_table,
               .out = out}));
  return ops::linear(stream, {.x = out, .weight = &layer.o, .y = residual, .accumulate = true});
}

Result<void> Qwen3::dense_block(Stream& stream, const Layer& layer, int64_t tokens,
                                Activations& a) const {
  const auto residual = a.residual.head(tokens);
  const auto normed = a.normed.head(tokens);
  const auto gate_up = a.dense_gate_up.head(tokens);
  const auto activated = a.dense_activated.head(tokens);

  TANDEM_TRY(ops::rms_norm(stream, {.x = residual,
                                    .weight = vector_of(layer.mlp_norm, shard_.config.hidden_size),
                                    .eps = shard_.config.rms_norm_eps,
                                    .out = normed}));
  TANDEM_TRY(ops::linear(stream, {.x = normed, .weight = &layer.dense.gate_up, .y = gate_up}));
  TANDEM_TRY(ops::silu_mul(stream, {.gate_up = gate_up, .out = activated}));
  return ops::linear(
      stream, {.x = activated, .weight = &layer.dense.down, .y = residual, .accumulate = true});
}

Result<void> Qwen3::moe_block(Stream& stream, const Layer& layer, TensorView<int32_t, 2> expert_ids,
                              Activations& a) const {
  const ModelConfig& c = shard_.config;
  const int64_t tokens = expert_ids.shape[0];
  const int64_t pairs = tokens * c.experts_per_token;
  const auto residual = a.residual.head(tokens);
  const auto normed = a.normed.head(tokens);
  const auto router = a.router.head(tokens);
  const auto expert_weights = a.expert_weights.head(tokens);
  const auto row_of = a.row_of.head(tokens);
  const auto gate_up = a.gate_up.head(pairs);
  const auto activated = a.activated.head(pairs);
  const auto expert_rows = a.expert_rows.head(pairs);

  TANDEM_TRY(ops::rms_norm(stream, {.x = residual,
                                    .weight = vector_of(layer.mlp_norm, c.hidden_size),
                                    .eps = c.rms_norm_eps,
                                    .out = normed}));
  TANDEM_TRY(ops::linear(stream, {.x = normed, .weight = &layer.moe.router, .y = router}));
  TANDEM_TRY(ops::route(stream, {.logits = router,
                                 .renormalise = c.norm_topk_prob,
                                 .expert_ids = expert_ids,
                                 .weights = expert_weights}));
  TANDEM_TRY(ops::group_tokens(stream, {.expert_ids = expert_ids,
                                        .expert_offsets = a.expert_offsets,
                                        .row_source = a.row_source.head(pairs),
                                        .row_of = row_of}));
  TANDEM_TRY(ops::expert_linear(stream, {.x = normed,
                                         .weights = &layer.moe.gate_up,
                                         .row_source = a.row_source.head(pairs),
                                         .expert_offsets = a.expert_offsets,
                                         .y = gate_up}));
  TANDEM_TRY(ops::silu_mul(stream, {.gate_up = gate_up, .out = activated}));
  TANDEM_TRY(ops::expert_linear(stream, {.x = activated,
                                         .weights = &layer.moe.down,
                                         .expert_offsets = a.expert_offsets,
                                         .y = expert_rows}));
  return ops::moe_combine(stream, {.rows = expert_rows,
                                   .row_of = row_of,
                                   .expert_ids = expert_ids,
                                   .weights = expert_weights,
                                   .wire = options_.compute,
                                   .y = residual});
}

}  // namespace tandem::model
