#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "comm/expert_ranges.h"

namespace tandem::comm {

/// Which rank's which slot holds which expert of one layer. A slot has room for the weights of one
/// expert. An expert may have copies on several ranks, never two on one, and may be on none when
/// ranks are gone. A value: ranks that compute it from equal arguments agree on all it says.
class ExpertPlacement {
 public:
  static constexpr int32_t kNone = -1;

  struct Shape {
    int32_t experts_count = 0;
    int32_t redundant_count = 0;  ///< slots beyond one per expert, over all ranks
    int ranks_count = 1;
  };
  /// Slots are shared out as ExpertRanges::balanced does. They hold the experts in order, then the
  /// first experts again; without redundant ones, exactly those ranges. kInvalidArgument, saying
  /// how many redundant experts would do, when a rank would have no slot, or more than experts.
  static Result<ExpertPlacement> initial(const Shape& shape);

  /// What ranks say that they hold, rank after rank: an expert or kNone for every slot. kDataLoss
  /// when it cannot be.
  static Result<ExpertPlacement> of(int32_t experts_count,
                                    std::span<const std::vector<int32_t>> held);

  /// The same slots and ranks with other experts in them: `experts` as experts() is.
  ExpertPlacement holding(std::vector<int32_t> experts) const;

  int ranks_count() const { return slots_.ranks_count(); }
  int32_t experts_count() const { return experts_count_; }
  int32_t slots_count(int rank) const { return slots_.count(rank); }
  /// The expert of every slot, rank after rank; kNone in an empty slot.
  std::span<const int32_t> experts() const { return experts_; }
  std::span<const int32_t> experts_of(int rank) const {
    return experts().subspan(static_cast<size_t>(slots_.first(rank)),
                             static_cast<size_t>(slots_.count(rank)));
  }
  /// Where a rank holds an expert, or kNone.
  int32_t slot_of(int rank, int32_t expert) const { return slot_of_[place(rank, expert)]; }
  bool holds(int rank, int32_t expert) const { return slot_of(rank, expert) != kNone; }
  /// Ranks that hold an expert.
  int copies_count(int32_t expert) const;
  /// Whether nobody holds some expert.
  bool lacks_experts() const { return lacks_experts_; }

  /// The rank that computes an expert for the tokens of rank `source`; kNone when nobody holds it.
  /// A holder serves itself. Other ranks take the holders by turns, so that the numbers of ranks
  /// that two holders of an expert serve differ by one at most.
  int server(int32_t expert, int source) const { return server_[place(source, expert)]; }

  bool operator==(const ExpertPlacement& other) const {
    return experts_ == other.experts_ && slots_ == other.slots_;
  }

 private:
  ExpertPlacement(ExpertRanges slots, int32_t experts_count, std::vector<int32_t> experts);
  size_t place(int rank, int32_t expert) const {
    return static_cast<size_t>(rank) * static_cast<size_t>(experts_count_) +
           static_cast<size_t>(expert);
  }
  void choose_servers(int32_t expert);

  ExpertRanges slots_;  // of each rank, as places in experts_
  int32_t experts_count_;
  std::vector<int32_t> experts_;  // [slots of all ranks]
  std::vector<int32_t> slot_of_;  // [ranks, experts]
  std::vector<int> server_;       // [ranks, experts]
  bool lacks_experts_ = false;
};

}  // namespace tandem::comm
