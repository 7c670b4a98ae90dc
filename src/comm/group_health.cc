#include "comm/group_health.h"

#include <fmt/format.h>

#include <utility>

namespace tandem::comm {

std::string RankPlace::name_of(int rank) const {
  return fmt::format("rank {} of host {} (process {})", rank, host, process_id);
}

GroupHealth::GroupHealth(std::vector<RankPlace> places, std::vector<int> numbers)
    : places_(std::move(places)),
      numbers_(std::move(numbers)),
      departed_(std::make_unique<std::atomic<bool>[]>(places_.size())),
      dead_(std::make_unique<std::atomic<bool>[]>(places_.size())) {}

int GroupHealth::number(int rank) const {
  return numbers_.empty() ? rank : numbers_.at(static_cast<size_t>(rank));
}

std::string GroupHealth::name(int rank) const {
  return places_.at(static_cast<size_t>(rank)).name_of(number(rank));
}

void GroupHealth::departed(int rank) {
  departed_[static_cast<size_t>(rank)].store(true, std::memory_order_release);
  losses_.fetch_add(1, std::memory_order_release);
}

bool GroupHealth::is_gone(int rank) const {
  return has_departed(rank) || dead_[static_cast<size_t>(rank)].load(std::memory_order_acquire);
}

int GroupHealth::first_departed() const {
  for (int rank = 0; rank < ranks_count(); ++rank) {
    if (has_departed(rank)) return rank;
  }
  return -1;
}

void GroupHealth::died(int rank, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  dead_[static_cast<size_t>(rank)].store(true, std::memory_order_release);
  losses_.fetch_add(1, std::memory_order_release);
  if (failure_.has_value()) return;
  failure_ = make_error(Code::kUnavailable, name(rank) + " is gone: " + reason);
  failed_.store(true, std::memory_order_release);
}

std::optional<Error> GroupHealth::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace tandem::comm
