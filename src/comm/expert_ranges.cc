#include "comm/expert_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace tandem::comm {

Result<ExpertRanges> ExpertRanges::balanced(int32_t experts_count, int ranks_count) {
  if (ranks_count < 1 || experts_count < ranks_count) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("{} experts on {} ranks: some would have none; use at most {} "
                                  "expert-parallel ranks",
                                  experts_count, ranks_count, experts_count));
  }
  std::vector<int32_t> first = {0};
  for (int rank = 0; rank < ranks_count; ++rank) {
    const bool is_larger = rank < experts_count % ranks_count;
    first.push_back(first.back() + experts_count / ranks_count + (is_larger ? 1 : 0));
  }
  return ExpertRanges(std::move(first));
}

ExpertRanges ExpertRanges::of_counts(std::span<const int32_t> counts) {
  std::vector<int32_t> first = {0};
  for (const int32_t count : counts) first.push_back(first.back() + count);
  return ExpertRanges(std::move(first));
}

int ExpertRanges::owner(int32_t expert) const {
  return static_cast<int>(std::upper_bound(first_.begin(), first_.end(), expert) - first_.begin()) -
         1;
}

bool ExpertRanges::is_one_tree() const {
  // The last range may be shorter: a missing leaf passes its sibling on.
  const int32_t width = count(0);
  if (ranks_count() > 1 && !std::has_single_bit(static_cast<uint32_t>(width))) return false;
  for (int rank = 0; rank < ranks_count(); ++rank) {
    if (first(rank) != rank * width) return false;
  }
  return true;
}

}  // namespace tandem::comm
