#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "comm/all_reduce/all_reduce.h"
#include "comm/expert_combine/expert_combine.h"
#include "comm/expert_exchange/expert_exchange.h"
#include "comm/gather_blocks/gather_blocks.h"
#include "comm/symmetric_heap.h"
#include "device/device.h"
#include "device/tensor.h"
#include "model/sharding.h"

namespace tandem::model {

/// What a rank exchanges with its peers in a forward pass: sums and blocks over its tensor-parallel
/// group, experts over all ranks. Used by the rank's thread; every rank of a group makes the same
/// calls in the same order. A model on one rank has none.
class RankComm {
 public:
  struct Limits {
    int64_t tokens_max = 0;  ///< tokens of one step of one data-parallel group
    int64_t rows_max = 0;    ///< tokens of one step whose logits are wanted
  };
  /// All ranks of the layout, at the same place of their allocations. `heap` outlives this.
  static Result<std::unique_ptr<RankComm>> create(comm::SymmetricHeap& heap, const Shard& shard,
                                                  DType compute, Limits limits);
  /// What create() takes of every rank's heap.
  static Result<size_t> heap_bytes(const Shard& shard, DType compute, Limits limits);

  /// Whether matrices are in parts, so that products are sums over ranks.
  bool has_parts() const { return sums_.has_value(); }
  /// y = the sum of all parts, in their tree.
  Result<void> sum(Stream& stream, TensorView<float, 2> y);
  /// y += the sum of all parts, which `part` holds afterwards.
  Result<void> add_sum(Stream& stream, TensorView<float, 2> part, TensorView<float, 2> y);
  /// y has this rank's columns of the vocabulary; gives it all others. [rows, vocabulary]
  Result<void> gather_vocabulary(Stream& stream, TensorView<float, 2> y);
  /// y has this rank's Shard::exchanged_tokens; gives it all others. [tokens, hidden]
  Result<void> gather_tokens(Stream& stream, TensorView<float, 2> y);

  /// Set where tokens stay and their experts' words are summed; else exchange() is.
  comm::ExpertCombine* combine() { return combine_ ? &*combine_ : nullptr; }
  comm::ExpertExchange& exchange() { return *exchange_; }

  /// Counts the experts that a layer chose for tokens that this rank sent to them.
  void count_chosen_experts(size_t layer, TensorView<const int32_t, 2> expert_ids);
  /// [layers, experts] since they were cleared; empty where tokens do not travel.
  std::span<uint64_t> chosen_experts() { return chosen_experts_; }

  /// The ranks that hold this rank's tokens, as a group.
  comm::SymmetricHeap& tensor_group() { return *tensor_group_; }

 private:
  explicit RankComm(const Shard& shard)
      : shard_(shard), blocks_(static_cast<size_t>(shard.layout.tensor_parallel)) {}

  const Shard shard_;
  std::unique_ptr<comm::SymmetricHeap> tensor_group_;
  std::optional<comm::AllReduce> sums_;
  std::optional<comm::GatherBlocks> vocabulary_;
  std::optional<comm::GatherBlocks> tokens_;
  std::optional<comm::ExpertCombine> combine_;
  std::optional<comm::ExpertExchange> exchange_;
  std::vector<comm::Block> blocks_;  // [tensor-parallel ranks] of the running gather
  std::vector<Range> vocabulary_ranges_;
  std::vector<uint64_t> chosen_experts_;  // [layers, experts]
};

}  // namespace tandem::model
