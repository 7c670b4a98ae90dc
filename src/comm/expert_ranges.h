#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace tandem::comm {

/// Which experts each rank holds: contiguous ranges in rank order. A value; the same on all ranks.
class ExpertRanges {
 public:
  /// Ranges whose sizes differ by at most one, the larger ones first: 30 on 8 ranks is
  /// 4,4,4,4,4,4,3,3. kInvalidArgument when some rank would have none.
  static Result<ExpertRanges> balanced(int32_t experts_count, int ranks_count);

  /// Ranges of these sizes, at least one, none negative.
  static ExpertRanges of_counts(std::span<const int32_t> counts);

  int ranks_count() const { return static_cast<int>(first_.size()) - 1; }
  int32_t experts_count() const { return first_.back(); }
  int32_t first(int rank) const { return first_[static_cast<size_t>(rank)]; }
  int32_t end(int rank) const { return first_[static_cast<size_t>(rank) + 1]; }
  int32_t count(int rank) const { return end(rank) - first(rank); }
  int owner(int32_t expert) const;

  /// Whether every rank's range is one subtree of the binary tree over experts, in rank order: then
  /// sums over ranks (all-reduce) have the bits of one rank. Other ranges are repeatable but not
  /// identical, except through the exchange, which is always identical.
  bool is_one_tree() const;

  bool operator==(const ExpertRanges&) const = default;

 private:
  explicit ExpertRanges(std::vector<int32_t> first) : first_(std::move(first)) {}
  std::vector<int32_t> first_;  // [ranks + 1], ascending
};

}  // namespace tandem::comm
