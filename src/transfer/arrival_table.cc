#include "transfer/arrival_table.h"

#include <fmt/format.h>

#include <utility>

namespace tandem::transfer {

ArrivalTable::ArrivalTable(uint32_t slots_count) : slots_(slots_count) {}

Result<void> ArrivalTable::expect(Arrival arrival, uint64_t count,
                                  std::function<void()> on_complete) {
  if (arrival.slot >= slots_.size()) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("arrival slot {} does not exist; this engine has {}",
                                  arrival.slot, slots_.size()));
  }
  Slot& slot = slots_[arrival.slot];
  if (slot.is_waiting) {
    return make_error(Code::kFailedPrecondition,
                      fmt::format("arrival slot {} still waits for epoch {}; cancel that first",
                                  arrival.slot, slot.epoch));
  }
  slot = {.was_used = true,
          .is_waiting = true,
          .epoch = arrival.epoch,
          .missing = count,
          .on_complete = std::move(on_complete)};
  ++waiting_count_;
  if (count == 0) complete_.push_back(arrival.slot);
  return {};
}

const ArrivalTable::Slot* ArrivalTable::waiting_slot(Arrival arrival) const {
  if (arrival.slot >= slots_.size()) return nullptr;
  const Slot& slot = slots_[arrival.slot];
  return slot.is_waiting && slot.epoch == arrival.epoch ? &slot : nullptr;
}

std::function<void()> ArrivalTable::end_wait(Slot& slot, bool is_complete) {
  slot.is_waiting = false;
  slot.is_complete = is_complete;
  slot.missing = 0;
  --waiting_count_;
  return std::exchange(slot.on_complete, nullptr);
}

bool ArrivalTable::cancel(Arrival arrival) {
  if (waiting_slot(arrival) == nullptr) return false;
  end_wait(slots_[arrival.slot], false);
  std::erase(complete_, arrival.slot);
  return true;
}

std::function<void()> ArrivalTable::arrived(uint32_t immediate) {
  const Arrival arrival = arrival_of(immediate);
  if (arrival.slot >= slots_.size() || !slots_[arrival.slot].was_used) {
    ++counts_.unknown;
    return nullptr;
  }
  Slot& slot = slots_[arrival.slot];
  const auto ahead = static_cast<int16_t>(arrival.epoch - slot.epoch);
  if (ahead > 0) {
    ++counts_.early;
  } else if (ahead < 0 || slot.missing == 0) {
    ++counts_.late;
  } else {
    ++counts_.counted;
    ++slot.counted;
    if (--slot.missing == 0) return end_wait(slot, true);
  }
  return nullptr;
}

std::function<void()> ArrivalTable::take_complete() {
  if (complete_.empty()) return nullptr;
  Slot& slot = slots_[complete_.back()];
  complete_.pop_back();
  return end_wait(slot, true);
}

ArrivalState ArrivalTable::state(Arrival arrival) const {
  if (arrival.slot >= slots_.size()) return {};
  const Slot& slot = slots_[arrival.slot];
  if (slot.epoch != arrival.epoch) return {};
  if (slot.is_waiting) return {ArrivalState::Status::kWaiting, slot.counted};
  return {slot.is_complete ? ArrivalState::Status::kComplete : ArrivalState::Status::kGone, 0};
}

uint64_t ArrivalTable::missing(Arrival arrival) const {
  const Slot* slot = waiting_slot(arrival);
  return slot == nullptr ? 0 : slot->missing;
}

}  // namespace tandem::transfer
