// The mixture of experts of a Qwen3 layer: routing, then the experts wherever they are.
#include <algorithm>
#include <utility>

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

Result<void> Qwen3::prepare_experts(ExpertReader& experts, int64_t layer,
                                    comm::ExpertPlacement placement) {
  TANDEM_CHECK(spare_experts_ != nullptr, "a layout that rebalances experts");
  spare_experts_->placement = std::move(placement);
  return experts.fill(*spare_experts_, shard_.rank, layer,
                      layers_[static_cast<size_t>(layer)].moe.experts.get());
}

std::vector<int32_t> Qwen3::held_experts() const {
  std::vector<int32_t> held;
  for (const Layer& layer : layers_) {
    if (layer.moe.experts == nullptr) continue;
    const auto own = layer.moe.experts->placement.experts_of(shard_.rank);
    held.insert(held.end(), own.begin(), own.end());
  }
  return held;
}

Result<void> Qwen3::go_on_among(int rank, std::span<const std::vector<int32_t>> held) {
  const auto layers = static_cast<size_t>(std::ranges::count(config().layer_is_moe, true));
  const auto ranks_count = static_cast<int>(held.size());
  std::vector<std::vector<int32_t>> of_layer(held.size());
  size_t done = 0;
  for (Layer& layer : layers_) {
    if (layer.moe.experts == nullptr) continue;
    for (size_t other = 0; other < held.size(); ++other) {
      const size_t slots = held[other].size() / layers;
      if (slots == 0 || held[other].size() % layers != 0) {
        return make_error(Code::kDataLoss, "a rank says that it holds experts of another model");
      }
      const auto first = held[other].begin() + static_cast<ptrdiff_t>(done * slots);
      of_layer[other].assign(first, first + static_cast<ptrdiff_t>(slots));
    }
    layer.moe.experts->placement = TANDEM_TRY(
        comm::ExpertPlacement::of(static_cast<int32_t>(config().experts_count), of_layer));
    ++done;
  }
  shard_ = shard_.among_survivors(rank, ranks_count / shard_.layout.tensor_parallel);
  return {};
}

std::optional<Qwen3::LostExpert> Qwen3::lost_expert_of(const Activations& a, Range tokens) const {
  const int64_t k = config().experts_per_token;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const ExpertStack* experts = layers_[i].moe.experts.get();
    if (experts == nullptr || !experts->placement.lacks_experts()) continue;
    const int32_t* ids = a.expert_ids.row(static_cast<int64_t>(i));
    for (int64_t pair = tokens.first * k; pair < tokens.end * k; ++pair) {
      if (experts->placement.copies_count(ids[pair]) > 0) continue;
      return LostExpert{.layer = static_cast<int64_t>(i), .expert = ids[pair]};
    }
  }
  return std::nullopt;
}

Result<void> Qwen3::moe_block(Stream& stream, size_t layer_index, TensorView<int32_t, 2> expert_ids,
                              Activations& a, RankComm* comm) const {
  const Layer& layer = layers_[layer_index];
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
  return moe_where_tokens_travel(stream, layer_index, expert_ids, a, *comm);
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
      run_experts(stream, *moe.experts, {a.normed.head(tokens), row_source, a.expert_offsets}, a));
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
  // Here experts never change their rank and have no copies: a rank's are a range.
  TANDEM_TRY(comm::expert_select(stream,
                                 {.expert_ids = expert_ids,
                                  .first_expert = moe.experts->placement.experts_of(shard_.rank)[0],
                                  .expert_offsets = a.expert_offsets,
                                  .row_source = a.row_source,
                                  .row_of = row_of}));
  const auto row_source = a.row_source.head(a.expert_offsets[shard_.expert_slots]);
  const auto rows = TANDEM_TRY(
      run_experts(stream, *moe.experts, {a.normed.head(tokens), row_source, a.expert_offsets}, a));
  return comm.combine()->run(stream, {.rows = rows,
                                      .row_of = row_of,
                                      .expert_ids = expert_ids,
                                      .weights = a.expert_weights.head(tokens),
                                      .wire = options_.compute,
                                      .y = a.residual.head(tokens)});
}

Result<void> Qwen3::moe_where_tokens_travel(Stream& stream, size_t layer_index,
                                            TensorView<const int32_t, 2> expert_ids, Activations& a,
                                            RankComm& comm) const {
  const int64_t tokens = expert_ids.shape[0];
  const Range own = shard_.exchanged_tokens(tokens);
  const auto own_ids = rows_of(expert_ids, own);
  const ExpertStack& experts = *layers_[layer_index].moe.experts;
  comm.count_chosen_experts(layer_index, own_ids);
  const auto received =
      TANDEM_TRY(comm.exchange().dispatch(stream, {.x = rows_of<const float>(a.normed, own),
                                                   .expert_ids = own_ids,
                                                   .placement = &experts.placement}));
  const auto rows = TANDEM_TRY(
      run_experts(stream, experts, {received.x, received.row_source, received.expert_offsets}, a));
  TANDEM_TRY(
      comm.exchange().combine(stream, {.rows = rows,
                                       .expert_ids = own_ids,
                                       .weights = rows_of<const float>(a.expert_weights, own),
                                       .y = rows_of(a.residual, own)}));
  return comm.gather_tokens(stream, a.residual.head(tokens));
}

Result<TensorView<const float, 2>> Qwen3::run_experts(Stream& stream, const ExpertStack& experts,
                                                      const ExpertInput& input,
                                                      Activations& a) const {
  const int64_t count = input.row_source.shape[0];
  const auto gate_up = a.gate_up.head(count);
  const auto activated = a.activated.head(count);
  const auto rows = a.expert_rows.head(count);
  a.expert_pairs += static_cast<uint64_t>(count);
  TANDEM_TRY(ops::expert_linear(stream, {.x = input.x,
                                         .weights = &experts.gate_up,
                                         .row_source = input.row_source,
                                         .expert_offsets = input.expert_offsets,
                                         .y = gate_up}));
  TANDEM_TRY(ops::silu_mul(stream, {.gate_up = gate_up, .out = activated}));
  TANDEM_TRY(ops::expert_linear(stream, {.x = activated,
                                         .weights = &experts.down,
                                         .expert_offsets = input.expert_offsets,
                                         .y = rows}));
  return TensorView<const float, 2>(rows);
}

}  // namespace tandem::model
