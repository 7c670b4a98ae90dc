#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "base/result.h"
#include "comm/all_gather/all_gather.h"
#include "comm/broadcast/broadcast.h"
#include "comm/doorbell/doorbell.h"
#include "comm/shared_counters/shared_counters.h"
#include "comm/step_header/step_header.h"
#include "comm/symmetric_heap.h"
#include "engine/step_memory.h"
#include "model/rank_comm.h"

namespace tandem::engine {

/// Everything of one rank that lives in the symmetric heap: what a forward pass exchanges, and how
/// ranks agree on which one is next. Used by the rank's thread, but for ring() and
/// tell_plan_ready().
class RankLinks {
 public:
  /// All ranks of the layout, first thing in their heaps, with the same options. `heap` outlives
  /// this.
  static Result<std::unique_ptr<RankLinks>> create(comm::SymmetricHeap& heap,
                                                   const model::Shard& shard, DType compute,
                                                   const StepMemory::Options& step);
  /// What create() takes of every rank's heap.
  static Result<size_t> heap_bytes(const model::Shard& shard, DType compute,
                                   const StepMemory::Options& step);

  model::RankComm& comm() { return *comm_; }
  /// Steps of the leader of a tensor-parallel group; none if it is alone.
  comm::Broadcast* steps() { return steps_ ? &*steps_ : nullptr; }
  /// Over the leaders of all data-parallel groups; not for followers.
  comm::StepLockstep& lockstep() { return *lockstep_; }
  comm::Doorbell& doorbell() { return *doorbell_; }
  /// RankComm::chosen_experts of all ranks; none in a layout that does not rebalance experts.
  comm::AllGather* chosen_experts() { return chosen_experts_ ? &*chosen_experts_ : nullptr; }
  /// Says to the leader of this rank's group that it can use a placement of experts.
  void tell_plan_ready(uint64_t plan_id);
  /// Of a leader: whether all its followers have said so of this plan or a later one.
  bool followers_are_ready(uint64_t plan_id) const;
  /// Of the ranks of a tensor-parallel group, for its leader to show.
  comm::SharedCounters& counters() { return *counters_; }
  /// Of all ranks.
  const comm::SymmetricHeap& heap() const { return heap_; }

 private:
  explicit RankLinks(const comm::SymmetricHeap& heap) : heap_(heap) {}

  const comm::SymmetricHeap& heap_;
  std::unique_ptr<model::RankComm> comm_;
  std::unique_ptr<comm::SymmetricHeap> leaders_;  // ranks of one tensor-parallel number
  std::optional<comm::Broadcast> steps_;
  std::optional<comm::StepLockstep> lockstep_;
  std::optional<comm::Doorbell> doorbell_;
  std::optional<comm::AllGather> chosen_experts_;
  comm::Flag plan_ready_;  // one per rank of the tensor-parallel group
  std::optional<comm::SharedCounters> counters_;
};

}  // namespace tandem::engine
