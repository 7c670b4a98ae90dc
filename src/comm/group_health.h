#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace tandem::comm {

/// Where a rank runs, for messages: "rank 3 of host b (process 4711)".
struct RankPlace {
  std::string host;
  int process_id = 0;

  std::string name_of(int rank) const;
};

/// Who of a group is still there, as one process knows it. Thread-safe: written by whoever notices
/// (a rank that leaves, a monitor thread), read by every wait. Lateness is not recorded: only an
/// end is.
class GroupHealth {
 public:
  /// `numbers`: what each rank is called, where that is not its rank in this group.
  explicit GroupHealth(std::vector<RankPlace> places, std::vector<int> numbers = {});

  int ranks_count() const { return static_cast<int>(places_.size()); }
  int number(int rank) const;
  /// "rank 3 of host b (process 4711)"
  std::string name(int rank) const;

  /// The rank is done and said so. Others may go on as long as they need nothing of it.
  void departed(int rank);
  /// The rank is dead or gave up: every wait of the group ends with this. The first one counts.
  void died(int rank, const std::string& reason);

  bool has_departed(int rank) const {
    return departed_[static_cast<size_t>(rank)].load(std::memory_order_acquire);
  }
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  /// Whether somebody is gone, dead or departed.
  bool has_losses() const { return losses_.load(std::memory_order_acquire) > 0; }
  bool is_gone(int rank) const;
  /// The first rank of which departed() was said; -1 while there is none.
  int first_departed() const;
  /// kUnavailable with name and reason of the first death; none while nobody has died.
  std::optional<Error> failure() const;

 private:
  const std::vector<RankPlace> places_;
  const std::vector<int> numbers_;
  std::unique_ptr<std::atomic<bool>[]> departed_;
  std::unique_ptr<std::atomic<bool>[]> dead_;
  std::atomic<int> losses_{0};
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::optional<Error> failure_;  // guarded by mutex_; set before failed_
};

}  // namespace tandem::comm
