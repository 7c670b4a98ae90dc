// The mixture of experts of a Qwen3 layer: routing, then the experts wherever they are.
#include "comm/expert_select/expert_select.h"
#include "model/qwen3.h"
#include "ops/expert_linear/expert_linear.h"
#include "ops/group_tokens/group_tokens.h"
#include "ops/linear/linear.h"
#include "ops/moe_combine/moe_combine.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/route/route.h"
#include "ops/silu_mul/silu_mul.h"

namespace tandem::model {
namespace {

template <typename T>
TensorView<T, 2> rows_of(const TensorView<T, 2>& all, Range rows) {
  return {all.data + rows.first * all.row_stride, {rows.count(), all.shape[1]}, all.row_stride};
}

}  // namespace

/// The rows that this rank's experts get.
struct Qwen3::ExpertInput {
  TensorView<const float, 2> x;                 // [places, hidden]
  TensorView<const int32_t, 1> row_source;      // [rows], places of x
  TensorView<const int32_t, 1> expert_offsets;  // [experts of this rank + 1]
};

Result<void> Qwen3::moe_block(Stream& stream, const Layer& layer, TensorView<int32_t, 2> expert_ids,
                              Activations& a, RankComm* comm) const {
  const ModelConfig& c = shard_.config;
  const int64_t tokens = expert_ids.shape[0];
  const auto normed = a.normed.head(tokens);
  const auto router = a.router.head(tokens);

  TANDEM_TRY(ops::rms_norm(stream, {.x = a.residual.head(tokens),
                                    .weight = vector_of(layer.mlp_norm, c.hidden_size),
                                    .eps = c.rms_norm_eps,
                                    .out = normed}));
  TANDEM_TRY(ops::linear(stream, {.x = normed, .weight = &layer.moe.router, .y = router}));
  TANDEM_TRY(ops::route(stream, {.logits = router,
                                 .renormalise = c.norm_topk_prob,
                                 .expert_ids = expert_ids,
                                 .weights = a.expert_weights.head(tokens)}));
  if (comm == nullptr) return moe_on_one_rank(stream, layer.moe, expert_ids, a);
  if (comm->combine() != nullptr) {
    return moe_where_tokens_stay(stream, layer.moe, expert_ids, a, *comm);
  }
  return moe_where_tokens_travel(stream, layer.moe, expert_ids, a, *comm);
}

Result<void> Qwen3::moe_on_one_rank(Stream& stream, const MoeMlp& moe,
                                    TensorView<const int32_t, 2> expert_ids, Activations& a) const {
  const int64_t tokens = expert_ids.shape[0];
  const auto row_source = a.row_source.head(expert_ids.size());
  const auto row_of = a.row_of.head(tokens);
  TANDEM_TRY(ops::group_tokens(stream, {.expert_ids = expert_ids,
                                        .expert_offsets = a.expert_offsets,
                                        .row_source = row_source,
                                        .row_of = row_of}));
  const auto rows = TANDEM_TRY(
      run_experts(stream, moe, {a.normed.head(tokens), row_source, a.expert_offsets}, a));
  return ops::moe_combine(stream, {.rows = rows,
                                   .row_of = row_of,
                                   .expert_ids = expert_ids,
                                   .weights = a.expert_weights.head(tokens),
                                   .wire = options_.compute,
                                   .y = a.residual.head(tokens)});
}

Result<void> Qwen3::moe_where_tokens_stay(Stream& stream, const MoeMlp& moe,
                                          TensorView<const int32_t, 2> expert_ids, Activations& a,
                                          RankComm& comm) const {
  const int64_t tokens = expert_ids.shape[0];
  const auto row_of = a.row_of.head(tokens);
  TANDEM_TRY(
      comm::expert_select(stream, {.expert_ids = expert_ids,
                                   .first_expert = static_cast<int32_t>(shard_.experts.first),
                                   .expert_offsets = a.expert_offsets,
                                   .row_source = a.row_source,
                                   .row_of = row_of}));
  const auto row_source = a.row_source.head(a.expert_offsets[shard_.experts.count()]);
  const auto rows = TANDEM_TRY(
      run_experts(stream, moe, {a.normed.head(tokens), row_source, a.expert_offsets}, a));
  return comm.combine()->run(stream, {.rows = rows,
                                      .row_of = row_of,
                                      .expert_ids = expert_ids,
                                      .weights = a.expert_weights.head(tokens),
                                      .wire = options_.compute,
                                      .y = a.residual.head(tokens)});
}

Result<void> Qwen3::moe_where_tokens_travel(Stream& stream, const MoeMlp& moe,
                                            TensorView<const int32_t, 2> expert_ids, Activations& a,
                                            RankComm& comm) const {
  const int64_t tokens = expert_ids.shape[0];
  const Range own = shard_.exchanged_tokens(tokens);
  const auto own_ids = rows_of(expert_ids, own);
  const auto received = TANDEM_TRY(comm.exchange().dispatch(
      stream, {.x = rows_of<const float>(a.normed, own), .expert_ids = own_ids}));
  const auto rows = TANDEM_TRY(
      run_experts(stream, moe, {received.x, received.row_source, received.expert_offsets}, a));
  TANDEM_TRY(
      comm.exchange().combine(stream, {.rows = rows,
                                       .expert_ids = own_ids,
                                       .weights = rows_of<const float>(a.expert_weights, own),
                                       .y = rows_of(a.residual, own)}));
  return comm.gather_tokens(stream, a.residual.head(tokens));
}

Result<TensorView<const float, 2>> Qwen3::run_experts(Stream& stream, const MoeMlp& moe,
                                                      const ExpertInput& input,
                                                      Activations& a) const {
  const int64_t count = input.row_source.shape[0];
  const auto gate_up = a.gate_up.head(count);
  const auto activated = a.activated.head(count);
  const auto rows = a.expert_rows.head(count);
  a.expert_pairs += static_cast<uint64_t>(count);
  TANDEM_TRY(ops::expert_linear(stream, {.x = input.x,
                                         .weights = &moe.gate_up,
                                         .row_source = input.row_source,
                                         .expert_offsets = input.expert_offsets,
                                         .y = gate_up}));
  TANDEM_TRY(ops::silu_mul(stream, {.gate_up = gate_up, .out = activated}));
  TANDEM_TRY(ops::expert_linear(
      stream,
      {.x = activated, .weights = &moe.down, .expert_offsets = input.expert_offsets, .y = rows}));
  return TensorView<const float, 2>(rows);
}

}  // namespace tandem::model
