#pragma once

#include <chrono>
#include <cstdint>
#include <random>

#include "rpc/channel.h"

namespace tandem::rpc {

/// How long to wait before the next attempt. Doubles with each failure; a connection that lived for
/// `redial_max` starts over, so that a peer that accepts and hangs up at once is not dialled
/// without a pause.
class Redial {
 public:
  Redial(const ChannelTimes& times, uint64_t seed) : times_(times), random_(seed) {}

  /// After a failed attempt (lived = 0) or a lost connection.
  std::chrono::nanoseconds next(std::chrono::nanoseconds lived) {
    if (lived >= times_.redial_max) wait_ = times_.redial_first;
    const std::chrono::nanoseconds wait = wait_;
    wait_ = std::min<std::chrono::nanoseconds>(wait * 2, times_.redial_max);
    // 80 % to 120 %, in thousandths: integers give the same times on every machine.
    return wait * static_cast<int64_t>(800 + random_() % 401) / 1000;
  }

 private:
  ChannelTimes times_;
  std::mt19937_64 random_;
  std::chrono::nanoseconds wait_ = times_.redial_first;
};

}  // namespace tandem::rpc
