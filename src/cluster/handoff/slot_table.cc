#include "cluster/handoff/slot_table.h"

#include "base/check.h"

namespace tandem::cluster::handoff {

SlotTable::SlotTable(const Options& options)
    : rest_us_(options.rest_us), slots_(options.slots_count, Slot{options.epoch_first}) {
  TANDEM_CHECK(options.slots_count >= 1 && options.slots_count <= 65536, "slots have 16 bits");
  for (uint32_t slot = 0; slot < options.slots_count; ++slot) {
    free_.push_back(static_cast<uint16_t>(slot));
  }
}

bool SlotTable::can_be_taken(const Slot& slot, int64_t now_us) const {
  const bool wraps = static_cast<uint16_t>(slot.epoch_next) == 0;
  return !wraps || (slot.unsettled == 0 && now_us - slot.given_back_us >= rest_us_);
}

std::optional<Key> SlotTable::take(int64_t now_us) {
  for (size_t tried = 0; tried < free_.size(); ++tried) {
    const uint16_t index = free_.front();
    free_.pop_front();
    Slot& slot = slots_[index];
    if (can_be_taken(slot, now_us)) {
      ++slot.unsettled;
      return Key{index, slot.epoch_next++};
    }
    free_.push_back(index);
  }
  return std::nullopt;
}

void SlotTable::give_back(Key key, int64_t now_us) {
  Slot& slot = slots_[key.slot];
  TANDEM_CHECK(key.epoch + 1 == slot.epoch_next, "only the last use of a slot is given back");
  slot.given_back_us = now_us;
  free_.push_back(key.slot);
}

void SlotTable::settle(Key key) {
  Slot& slot = slots_[key.slot];
  TANDEM_CHECK(slot.unsettled > 0, "an epoch is settled once");
  --slot.unsettled;
}

}  // namespace tandem::cluster::handoff
