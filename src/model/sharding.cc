#include "model/sharding.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace tandem::model {
namespace {

/// The share of `part` when `count` things are cut into parts whose sizes differ by at most one,
/// the larger ones first.
Range balanced(int64_t count, int parts, int part) {
  const int64_t share = count / parts;
  const int64_t larger = count % parts;
  const int64_t first = part * share + std::min<int64_t>(part, larger);
  return {first, first + share + (part < larger ? 1 : 0)};
}

Error unfit(const std::string& what) {
  return make_error(Code::kInvalidArgument, what);
}

Result<void> shard_heads(Shard& shard) {
  const ModelConfig& c = shard.config;
  const int tp = shard.layout.tensor_parallel;
  if (c.heads % tp != 0) {
    return unfit(fmt::format(
        "--tensor-parallel-size {}: {} query heads cannot be shared evenly; use a divisor of {}",
        tp, c.heads, c.heads));
  }
  if (c.kv_heads % tp != 0 && tp % c.kv_heads != 0) {
    return unfit(
        fmt::format("--tensor-parallel-size {}: {} KV heads can be neither shared nor "
                    "copied evenly; use a divisor or a multiple of {}",
                    tp, c.kv_heads, c.kv_heads));
  }
  const int64_t group = c.heads / c.kv_heads;
  shard.heads = balanced(c.heads, tp, shard.tensor_rank());
  shard.kv_heads = {shard.heads.first / group, (shard.heads.end + group - 1) / group};
  shard.heads_are_one_tree =
      tp == 1 || std::has_single_bit(static_cast<uint64_t>(shard.heads.count()));
  return {};
}

/// Whole partial sums per rank. If it leaves no rank without, each rank's are a subtree of the
/// tree over all of them: a power of two, the last rank fewer.
Result<void> shard_dense_columns(Shard& shard) {
  const int64_t columns = shard.config.intermediate_size;
  const int tp = shard.layout.tensor_parallel;
  const int64_t parts = (columns + kDenseDownPartition - 1) / kDenseDownPartition;
  if (parts < tp) {
    return unfit(
        fmt::format("--tensor-parallel-size {}: a dense layer of {} columns is cut at "
                    "multiples of {}; use at most {}",
                    tp, columns, kDenseDownPartition, parts));
  }
  const auto share = static_cast<uint64_t>((parts + tp - 1) / tp);
  const auto width = static_cast<int64_t>(std::bit_ceil(share));
  shard.dense_columns_are_one_tree = tp == 1 || width * (tp - 1) < parts;
  Range own = balanced(parts, tp, shard.tensor_rank());
  if (shard.dense_columns_are_one_tree && tp > 1) {
    own = {width * shard.tensor_rank(), std::min(parts, width * (shard.tensor_rank() + 1))};
  }
  shard.dense_columns = {own.first * kDenseDownPartition,
                         std::min(columns, own.end * kDenseDownPartition)};
  return {};
}

comm::ExpertPlacement::Shape shape_of(const ModelConfig& config, const Layout& layout) {
  return {.experts_count = static_cast<int32_t>(config.experts_count),
          .redundant_count = layout.redundant_experts,
          .ranks_count = layout.ranks_count()};
}

}  // namespace

Shard::Shard(const ModelConfig& c)
    : config(c),
      heads{0, c.heads},
      kv_heads{0, c.kv_heads},
      dense_columns{0, c.intermediate_size},
      vocabulary{0, c.vocab_size},
      expert_slots(c.experts_count) {}

Result<Shard> Shard::create(const ModelConfig& config, const Layout& layout, int rank) {
  const int tp = layout.tensor_parallel;
  if (tp < 1 || layout.data_parallel < 1) {
    return unfit(fmt::format("--tensor-parallel-size {} and --data-parallel-size {}: use 1 or more",
                             tp, layout.data_parallel));
  }
  TANDEM_CHECK(rank >= 0 && rank < layout.ranks_count(), "a rank of the layout");
  Shard shard(config);
  shard.layout = layout;
  shard.rank = rank;
  TANDEM_TRY(shard_heads(shard));
  if (std::ranges::find(config.layer_is_moe, false) != config.layer_is_moe.end()) {
    TANDEM_TRY(shard_dense_columns(shard));
  }
  if (config.vocab_size < tp) {
    return unfit(fmt::format("--tensor-parallel-size {}: the vocabulary has {} rows only", tp,
                             config.vocab_size));
  }
  shard.vocabulary = shard.vocabulary_of(shard.tensor_rank());
  if (config.experts_count > 0) {
    TANDEM_TRY(comm::ExpertPlacement::initial(shape_of(config, layout)));
    shard.expert_slots = shard.expert_placement().slots_count(rank);
  } else if (layout.redundant_experts > 0 || layout.rebalances_experts) {
    return unfit("--num-redundant-experts and --enable-eplb: the model has no experts");
  }
  return shard;
}

Shard Shard::among_survivors(int new_rank, int data_parallel) const {
  Shard shard = *this;
  shard.layout.data_parallel = data_parallel;
  shard.rank = new_rank;
  shard.has_lost_ranks = true;
  TANDEM_CHECK(shard.tensor_rank() == tensor_rank(), "tensor-parallel groups go on whole");
  return shard;
}

Range Shard::vocabulary_of(int of_tensor_rank) const {
  return balanced(config.vocab_size, layout.tensor_parallel, of_tensor_rank);
}

comm::ExpertPlacement Shard::expert_placement() const {
  return comm::ExpertPlacement::initial(shape_of(config, layout)).value();
}

bool Shard::exchanges_tokens() const {
  if (is_whole() || config.experts_count == 0) return false;
  if (layout.data_parallel > 1 || layout.redundant_experts > 0 || layout.rebalances_experts ||
      has_lost_ranks) {
    return true;
  }
  const auto ranges = comm::ExpertRanges::balanced(static_cast<int32_t>(config.experts_count),
                                                   layout.ranks_count());
  return !ranges.value().is_one_tree();
}

Range Shard::exchanged_tokens(int64_t tokens, int of_tensor_rank) const {
  return balanced(tokens, layout.tensor_parallel, of_tensor_rank);
}

int64_t Shard::expert_rows_max(int64_t tokens_max) const {
  const int64_t pairs_of_token = std::min(config.experts_per_token, expert_slots);
  if (!exchanges_tokens()) return tokens_max * pairs_of_token;
  const int64_t from_each = exchanged_tokens(tokens_max, 0).count();
  return layout.ranks_count() * from_each * pairs_of_token;
}

}  // namespace tandem::model
