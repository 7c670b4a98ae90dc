#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "cluster/handoff/key.h"

namespace tandem::cluster::handoff {

/// Where hand-offs count their writes, and under which epoch. A slot is taken by one hand-off at a
/// time; given back, it may be taken again at once, under the next epoch, although the pages of the
/// last one are still held. Only where the half of the epoch that immediates carry starts again
/// must a slot have nothing held any more and have rested.
///
/// Owns its bookkeeping, reserved at start. One thread.
class SlotTable {
 public:
  struct Options {
    uint32_t slots_count = 4096;  ///< <= 65536
    int64_t rest_us = 10'000'000;
    uint64_t epoch_first = 1;  ///< tests start close to the wrap
  };
  explicit SlotTable(const Options& options);

  /// The slot that was given back longest ago, under its next epoch; none when all are taken or
  /// have to rest.
  std::optional<Key> take(int64_t now_us);
  /// Its count is dropped.
  void give_back(Key key, int64_t now_us);
  /// No write of this epoch can land any more. After give_back.
  void settle(Key key);

  uint32_t available() const { return static_cast<uint32_t>(free_.size()); }

 private:
  struct Slot {
    uint64_t epoch_next;
    int64_t given_back_us = 0;
    uint32_t unsettled = 0;  // epochs that were taken and not settled
  };
  bool can_be_taken(const Slot& slot, int64_t now_us) const;

  int64_t rest_us_;
  std::vector<Slot> slots_;
  std::deque<uint16_t> free_;  // given back longest ago first
};

}  // namespace tandem::cluster::handoff
