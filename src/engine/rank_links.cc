#include "engine/rank_links.h"

#include "comm/measure_heap.h"
#include "engine/rank_tally.h"
#include "engine/step_message.h"

namespace tandem::engine {

Result<std::unique_ptr<RankLinks>> RankLinks::create(comm::SymmetricHeap& heap,
                                                     const model::Shard& shard, DType compute,
                                                     const StepMemory::Options& step) {
  std::unique_ptr<RankLinks> links(new RankLinks(heap));
  links->comm_ = TANDEM_TRY(model::RankComm::create(
      heap, shard, compute, {.tokens_max = step.tokens_max, .rows_max = step.rows_max}));
  if (shard.layout.tensor_parallel > 1) {
    links->steps_ = TANDEM_TRY(comm::Broadcast::create(links->comm_->tensor_group(),
                                                       StepMessage::bytes_max(step.tensors())));
  }
  links->leaders_ = heap.subgroup({.first_rank = shard.tensor_rank(),
                                   .ranks_count = shard.layout.data_parallel,
                                   .step = shard.layout.tensor_parallel});
  links->lockstep_ = TANDEM_TRY(comm::StepLockstep::create(*links->leaders_, 0));
  links->doorbell_ = TANDEM_TRY(comm::Doorbell::create(*links->leaders_));
  if (shard.layout.rebalances_experts) {
    links->chosen_experts_ =
        TANDEM_TRY(comm::AllGather::create(heap, links->comm_->chosen_experts().size_bytes()));
    links->plan_ready_ =
        TANDEM_TRY(links->comm_->tensor_group().allocate_flags(shard.layout.tensor_parallel));
  }
  links->counters_ = TANDEM_TRY(
      comm::SharedCounters::create(links->comm_->tensor_group(), std::tuple_size_v<TallyRow>));
  return links;
}

void RankLinks::tell_plan_ready(uint64_t plan_id) {
  comm::SymmetricHeap& group = comm_->tensor_group();
  group.signal(0, comm::SymmetricHeap::flag_at(plan_ready_, group.rank()), plan_id);
}

bool RankLinks::followers_are_ready(uint64_t plan_id) const {
  const comm::SymmetricHeap& group = comm_->tensor_group();
  for (int rank = 1; rank < group.ranks_count(); ++rank) {
    if (!group.has_arrived(comm::SymmetricHeap::flag_at(plan_ready_, rank), plan_id)) return false;
  }
  return true;
}

Result<size_t> RankLinks::heap_bytes(const model::Shard& shard, DType compute,
                                     const StepMemory::Options& step) {
  const auto first = TANDEM_TRY(model::Shard::create(shard.config, shard.layout, 0));
  return comm::measure_heap(shard.layout.ranks_count(),
                            [&](comm::SymmetricHeap& heap) -> Result<void> {
                              TANDEM_TRY(create(heap, first, compute, step));
                              return {};
                            });
}

}  // namespace tandem::engine
