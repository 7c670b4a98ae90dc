#include "comm/group_health.h"

#include <utility>

namespace tandem::comm {

GroupHealth::GroupHealth(std::vector<RankPlace> places)
    : places_(std::move(places)),
      departed_(std::make_unique<std::atomic<bool>[]>(places_.size())) {}

std::string GroupHealth::name(int rank) const {
  const RankPlace& place = places_.at(static_cast<size_t>(rank));
  return "rank " + std::to_string(rank) + " of host " + place.host + " (process " +
         std::to_string(place.process_id) + ")";
}

void GroupHealth::departed(int rank) {
  departed_[static_cast<size_t>(rank)].store(true, std::memory_order_release);
}

void GroupHealth::died(int rank, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (failure_.has_value()) return;
  failure_ = make_error(Code::kUnavailable, name(rank) + " is gone: " + reason +
                                                "; the group cannot go on without it, start the "
                                                "ranks again");
  failed_.store(true, std::memory_order_release);
}

std::optional<Error> GroupHealth::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace tandem::comm
