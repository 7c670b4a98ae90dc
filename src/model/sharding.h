#pragma once

#include <cstdint>

#include "base/result.h"
#include "comm/expert_placement.h"
#include "model/config.h"
#include "model/range.h"

namespace tandem::model {

/// How one model is spread over ranks. Rank r is tensor-parallel rank r % tensor_parallel of
/// data-parallel group r / tensor_parallel. The ranks of a group hold the same tokens and parts of
/// every matrix; groups hold different tokens and the same matrices. Experts go over all ranks.
struct Layout {
  int tensor_parallel = 1;
  int data_parallel = 1;
  int redundant_experts = 0;        ///< copies of experts in every layer, over all ranks
  bool rebalances_experts = false;  ///< whether experts go from rank to rank while serving

  int ranks_count() const { return tensor_parallel * data_parallel; }
  bool operator==(const Layout&) const = default;
};

/// What one rank holds of a model. A value, computed from its arguments alone.
struct Shard {
  /// All of it, the shard of the only rank. Implicit: a config is a model on one rank.
  Shard(const ModelConfig& config);
  /// kInvalidArgument, with what would do, for a layout in which a rank has nothing to hold or
  /// ranks would hold unequal numbers of heads.
  static Result<Shard> create(const ModelConfig& config, const Layout& layout, int rank);

  int tensor_rank() const { return rank % layout.tensor_parallel; }
  int data_rank() const { return rank / layout.tensor_parallel; }
  bool is_whole() const { return layout.ranks_count() == 1 && !has_lost_ranks; }
  /// What this rank is among `data_parallel` groups that are left when others are lost, as rank
  /// `rank` of theirs: it holds the same.
  Shard among_survivors(int rank, int data_parallel) const;
  /// Whether tokens travel to their experts. If not, every rank holds every token, and what its
  /// experts say of them is summed over ranks.
  bool exchanges_tokens() const;
  /// Of a step of `tokens` tokens, those which this rank sends to their experts: the ranks of a
  /// tensor-parallel group share the work evenly.
  Range exchanged_tokens(int64_t tokens) const { return exchanged_tokens(tokens, tensor_rank()); }
  Range exchanged_tokens(int64_t tokens, int of_tensor_rank) const;
  /// The rows of the head that a rank of the tensor-parallel group holds.
  Range vocabulary_of(int of_tensor_rank) const;
  /// (token, expert) pairs that this rank may have to compute in a step of `tokens_max` tokens.
  int64_t expert_rows_max(int64_t tokens_max) const;
  /// Where the experts of a layer start; the model has some, and no rank is lost.
  comm::ExpertPlacement expert_placement() const;
  /// Whether sums over ranks have the bits of one rank. If not, they are repeatable, and equal on
  /// all ranks.
  bool is_exact() const { return heads_are_one_tree && dense_columns_are_one_tree; }

  ModelConfig config;  ///< of the whole model
  Layout layout;
  int rank = 0;
  Range heads;          ///< of queries
  Range kv_heads;       ///< those of the queries' groups; several ranks hold one when TP is larger
  Range dense_columns;  ///< of a dense layer's gate and up, and rows of its down
  Range vocabulary;     ///< rows of the embedding and of the head
  int64_t expert_slots = 0;     ///< experts of one layer that this rank holds
  bool has_lost_ranks = false;  ///< experts are where the model says (Qwen3::expert_placement)
  bool heads_are_one_tree = true;
  bool dense_columns_are_one_tree = true;
};

/// Columns of one partial sum of a dense down projection (contracts: numerics).
inline constexpr int64_t kDenseDownPartition = 128;

}  // namespace tandem::model
