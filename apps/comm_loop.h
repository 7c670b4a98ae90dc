#pragma once

#include <cstdint>

#include "apps/comm_cell.h"
#include "base/result.h"

namespace tandem::apps {

/// What one cell of `bench comm` took.
struct CommTimes {
  double us_p50 = 0;       ///< of one call on one rank, over all ranks and calls
  double us_p99 = 0;       ///< the same
  double us = 0;           ///< all calls of a round by their number; the median round
  double floor_us = 0;     ///< the collective's bytes_moved at the speed of the copies; median
  double over_floor = 0;   ///< us / floor_us within one round; the median round; 0: no floor
  uint64_t bytes_put = 0;  ///< by all ranks in one call
};

/// Runs a collective on ranks that are threads of this process, one core's worth each. A round is
/// some copies of a rank's rows by every thread, then some calls: so both see the machine as it is
/// at that moment, and a ratio means something where times do not.
Result<CommTimes> time_collective(const Collective& collective, const CommSize& size,
                                  uint32_t rounds);

}  // namespace tandem::apps
