#include "model/qwen3.h"

#include <cmath>

#include "ops/attention/attention.h"
#include "ops/embed/embed.h"
#include "ops/linear/linear.h"
#include "ops/qk_norm_rope/qk_norm_rope.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/signal_progress/signal_progress.h"
#include "ops/silu_mul/silu_mul.h"

namespace tandem::model {

Qwen3::Qwen3(Shard shard, Options options) : shard_(std::move(shard)), options_(options) {}

Result<void> Qwen3::forward(Stream& stream, const StepInput& input, std::span<const ops::KvPool> kv,
                            Activations& a, RankComm* comm) const {
  const ModelConfig& c = shard_.config;
  const int64_t tokens = input.tokens.shape[0];
  const int64_t rows = input.logits_rows.shape[0];
  const bool has_parts = comm != nullptr && comm->has_parts();
  TANDEM_CHECK(kv.size() == layers_.size(), "one KV pool per layer");
  TANDEM_CHECK(shard_.is_whole() == (comm == nullptr), "a rank of several has peers");

  const AnyTensor table{
      embedding_.data(), options_.compute, 2, {shard_.vocabulary.count(), c.hidden_size}};
  const auto residual = a.residual.head(tokens);
  TANDEM_TRY(ops::embed(stream, {.tokens = input.tokens,
                                 .table = table,
                                 .first_token = shard_.vocabulary.first,
                                 .is_part = has_parts,
                                 .out = residual}));
  if (has_parts) TANDEM_TRY(comm->sum(stream, residual));

  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    TANDEM_TRY(attention_block(stream, i, input, kv[i], a, comm));
    if (c.layer_is_moe[i]) {
      const auto expert_ids = TensorView<int32_t, 2>::make(
          a.expert_ids.row(static_cast<int64_t>(i)), {tokens, c.experts_per_token});
      TANDEM_TRY(moe_block(stream, i, expert_ids, a, comm));
    } else {
      TANDEM_TRY(dense_block(stream, layer, tokens, a, comm));
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
  const auto logits = a.logits.head(rows);
  const TensorView<float, 2> own{
      logits.data + shard_.vocabulary.first, {rows, shard_.vocabulary.count()}, logits.row_stride};
  TANDEM_TRY(ops::linear(stream, {.x = last, .weight = &lm_head_, .y = own}));
  if (has_parts) TANDEM_TRY(comm->gather_vocabulary(stream, logits));
  return {};
}

Result<void> Qwen3::project_back(Stream& stream, TensorView<const float, 2> x,
                                 const ops::PackedLinear& weight, Activations& a,
                                 RankComm* comm) const {
  const auto residual = a.residual.head(x.shape[0]);
  if (comm == nullptr || !comm->has_parts()) {
    return ops::linear(stream, {.x = x, .weight = &weight, .y = residual, .accumulate = true});
  }
  const auto part = a.part.head(x.shape[0]);
  TANDEM_TRY(ops::linear(stream, {.x = x, .weight = &weight, .y = part}));
  return comm->add_sum(stream, part, residual);
}

Result<void> Qwen3::attention_block(Stream& stream, size_t layer_index, const StepInput& input,
                                    const ops::KvPool& kv, Activations& a, RankComm* comm) const {
  const Layer& layer = layers_[layer_index];
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
               .heads = shard_.heads.count(),
               .q_norm = vector_of(layer.q_norm, c.head_dim),
               .k_norm = vector_of(layer.k_norm, c.head_dim),
               .eps = c.rms_norm_eps,
               .positions = input.positions,
               .cos_sin = TensorView<const float, 2>::make(
                   cos_sin_.as<const float>(), {options_.positions_max, c.rope.rotary_dim}),
               .slots = input.slots,
               .kv = kv}));
  if (input.progress.data != nullptr) {
    TANDEM_TRY(ops::signal_progress(
        stream, {.counter = input.progress, .value = input.step * layers_.size() + layer_index}));
  }
  // The queries are the first columns of every qkv row.
  const TensorView<const float, 2> q{
      qkv.data, {tokens, shard_.heads.count() * c.head_dim}, qkv.row_stride};
  TANDEM_TRY(ops::attention(
      stream, {.q = q,
               .kv = kv,
               .heads = shard_.heads.count(),
               .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim))),
               .query_start = input.query_start,
               .kv_tokens = input.kv_tokens,
               .page_table = input.page_table,
               .out = out}));
  return project_back(stream, out, layer.o, a, comm);
}

Result<void> Qwen3::dense_block(Stream& stream, const Layer& layer, int64_t tokens, Activations& a,
                                RankComm* comm) const {
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
  return project_back(stream, activated, layer.dense.down, a, comm);
}

}  // namespace tandem::model
