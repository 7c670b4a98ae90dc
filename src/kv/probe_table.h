#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/check.h"

namespace tandem::kv {

/// A multimap from 64-bit keys to small integers: open addressing with linear probing. All memory
/// is taken by the constructor. Equal keys of different things are normal; the caller's predicate
/// decides which value is meant. The table is at most half full, so that probes stay short, and
/// erasing moves entries back instead of leaving tombstones, so that they stay short for ever.
///
/// Owns its slots. One thread.
class ProbeTable {
 public:
  explicit ProbeTable(uint32_t entries_max)
      : entries_max_(entries_max),
        slots_(std::bit_ceil(2 * uint64_t{entries_max} + 2)),
        mask_(slots_.size() - 1) {}

  uint32_t size() const { return size_; }

  /// The first value under `key` for which `is_equal(value)` holds.
  template <typename IsEqual>
  std::optional<uint32_t> find(uint64_t key, const IsEqual& is_equal) const {
    for (uint64_t at = key & mask_; slots_[at].used; at = (at + 1) & mask_) {
      if (slots_[at].key == key && is_equal(slots_[at].value)) return slots_[at].value;
    }
    return std::nullopt;
  }

  void insert(uint64_t key, uint32_t value) {
    TANDEM_CHECK(size_ < entries_max_, "probe table holds more than it was made for");
    uint64_t at = key & mask_;
    while (slots_[at].used) at = (at + 1) & mask_;
    slots_[at] = {.key = key, .value = value, .used = true};
    ++size_;
  }

  /// Removes an entry that must be there.
  void erase(uint64_t key, uint32_t value) {
    uint64_t hole = key & mask_;
    while (slots_[hole].used && (slots_[hole].key != key || slots_[hole].value != value)) {
      hole = (hole + 1) & mask_;
    }
    TANDEM_CHECK(slots_[hole].used, "erased entry is not in the probe table");
    for (uint64_t at = (hole + 1) & mask_; slots_[at].used; at = (at + 1) & mask_) {
      // An entry may move back into the hole unless that would put it before its home slot.
      uint64_t from_home = (at - slots_[at].key) & mask_;
      uint64_t from_hole = (at - hole) & mask_;
      if (from_home < from_hole) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = {};
    --size_;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t value = 0;
    bool used = false;
  };

  uint32_t entries_max_;
  std::vector<Slot> slots_;
  uint64_t mask_;
  uint32_t size_ = 0;
};

}  // namespace tandem::kv
