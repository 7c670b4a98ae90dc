#include "model/rank_comm.h"

#include <array>

#include "comm/all_reduce/add_rows.h"
#include "comm/measure_heap.h"

namespace tandem::model {
namespace {

std::span<float> flat(TensorView<float, 2> y) {
  TANDEM_CHECK(y.shape[0] <= 1 || y.row_stride == y.shape[1], "rows without gaps");
  return {y.data, static_cast<size_t>(y.size())};
}

}  // namespace

Result<std::unique_ptr<RankComm>> RankComm::create(comm::SymmetricHeap& heap, const Shard& shard,
                                                   DType compute, Limits limits) {
  const ModelConfig& c = shard.config;
  const Layout& layout = shard.layout;
  const int tp = layout.tensor_parallel;
  TANDEM_CHECK(heap.ranks_count() == layout.ranks_count(), "a heap per rank");
  std::unique_ptr<RankComm> made(new RankComm(shard));
  made->tensor_group_ = heap.subgroup({.first_rank = shard.data_rank() * tp, .ranks_count = tp});
  comm::SymmetricHeap& group = *made->tensor_group_;
  if (tp > 1) {
    made->sums_ = TANDEM_TRY(
        comm::AllReduce::create(group, {.floats_max = limits.tokens_max * c.hidden_size}));
    int64_t columns_max = 0;
    for (int rank = 0; rank < tp; ++rank) {
      made->vocabulary_ranges_.push_back(shard.vocabulary_of(rank));
      columns_max = std::max(columns_max, made->vocabulary_ranges_.back().count());
    }
    made->vocabulary_ = TANDEM_TRY(comm::GatherBlocks::create(
        group,
        {.columns_max = columns_max,
         .floats_max = std::min(comm::GatherBlocks::kPieceFloats, limits.rows_max * columns_max)}));
  }
  if (c.experts_count == 0) return made;
  if (!shard.exchanges_tokens()) {
    made->combine_ = TANDEM_TRY(comm::ExpertCombine::create(
        heap, {.tokens_max = limits.tokens_max, .hidden = c.hidden_size}));
    return made;
  }
  made->chosen_experts_.resize(static_cast<size_t>(c.layers_count * c.experts_count));
  const int64_t tokens_max = (limits.tokens_max + tp - 1) / tp;
  made->exchange_ = TANDEM_TRY(comm::ExpertExchange::create(
      heap, {.tokens_max = tokens_max,
             .hidden = c.hidden_size,
             .k = c.experts_per_token,
             .dispatch = compute,  // what products round x to
             .wire = compute,
             .slots_count = static_cast<int32_t>(shard.expert_slots)}));
  if (tp > 1) {
    made->tokens_ = TANDEM_TRY(comm::GatherBlocks::create(
        group, {.columns_max = c.hidden_size, .floats_max = tokens_max * c.hidden_size}));
  }
  return made;
}

Result<size_t> RankComm::heap_bytes(const Shard& shard, DType compute, Limits limits) {
  const Shard first = TANDEM_TRY(Shard::create(shard.config, shard.layout, 0));
  return comm::measure_heap(shard.layout.ranks_count(),
                            [&](comm::SymmetricHeap& heap) -> Result<void> {
                              TANDEM_TRY(create(heap, first, compute, limits));
                              return {};
                            });
}

void RankComm::count_chosen_experts(size_t layer, TensorView<const int32_t, 2> expert_ids) {
  uint64_t* counts =
      chosen_experts_.data() + layer * static_cast<size_t>(shard_.config.experts_count);
  for (int64_t t = 0; t < expert_ids.shape[0]; ++t) {
    for (int64_t j = 0; j < expert_ids.shape[1]; ++j) ++counts[expert_ids.row(t)[j]];
  }
}

Result<void> RankComm::sum(Stream& stream, TensorView<float, 2> y) {
  return sums_->run(stream, flat(y), flat(y));
}

Result<void> RankComm::add_sum(Stream& stream, TensorView<float, 2> part, TensorView<float, 2> y) {
  TANDEM_TRY(sum(stream, part));
  if (y.size() == 0) return {};
  const std::array<const float*, 2> rows = {y.data, part.data};
  return comm::add_rows(stream, {.rows = rows, .y = flat(y)});
}

Result<void> RankComm::gather_vocabulary(Stream& stream, TensorView<float, 2> y) {
  for (size_t rank = 0; rank < blocks_.size(); ++rank) {
    const Range columns = vocabulary_ranges_[rank];
    blocks_[rank] = {.rows = y.shape[0], .first_column = columns.first, .columns = columns.count()};
  }
  return vocabulary_->run(stream, y, blocks_);
}

Result<void> RankComm::gather_tokens(Stream& stream, TensorView<float, 2> y) {
  if (!tokens_) return {};
  for (size_t rank = 0; rank < blocks_.size(); ++rank) {
    const Range rows = shard_.exchanged_tokens(y.shape[0], static_cast<int>(rank));
    blocks_[rank] = {.first_row = rows.first, .rows = rows.count(), .columns = y.shape[1]};
  }
  return tokens_->run(stream, y, blocks_);
}

}  // namespace tandem::model
