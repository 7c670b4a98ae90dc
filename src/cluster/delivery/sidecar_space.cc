#include "cluster/delivery/sidecar_space.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace tandem::cluster {

SidecarSpace::SidecarSpace(uint64_t records_total) {
  if (records_total > 0) gaps_.emplace(0, records_total);
}

std::optional<uint64_t> SidecarSpace::take(uint64_t records) {
  TANDEM_CHECK(records > 0, "nobody needs a stretch of no records");
  const auto gap =
      std::ranges::find_if(gaps_, [records](const auto& each) { return each.second >= records; });
  if (gap == gaps_.end()) return std::nullopt;
  const auto [first, length] = *gap;
  gaps_.erase(gap);
  if (length > records) gaps_.emplace(first + records, length - records);
  stretches_.emplace(first, records);
  taken_ += records;
  return first;
}

void SidecarSpace::give_back(uint64_t first) {
  const auto stretch = stretches_.find(first);
  TANDEM_CHECK(stretch != stretches_.end(), "a stretch is given back that was not taken");
  uint64_t records = stretch->second;
  stretches_.erase(stretch);
  taken_ -= records;
  const auto next = gaps_.lower_bound(first);
  if (next != gaps_.end() && next->first == first + records) {
    records += next->second;
    gaps_.erase(next);
  }
  const auto above = gaps_.lower_bound(first);
  if (above != gaps_.begin()) {
    const auto before = std::prev(above);
    if (before->first + before->second == first) {
      before->second += records;
      return;
    }
  }
  gaps_.emplace(first, records);
}

}  // namespace tandem::cluster
