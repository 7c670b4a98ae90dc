#pragma once

#include <chrono>
#include <functional>

namespace tandem::transfer {

using Duration = std::chrono::steady_clock::duration;
using TimePoint = std::chrono::steady_clock::time_point;

/// Where time comes from: the steady clock, or a simulator's virtual one.
using Clock = std::function<TimePoint()>;

}  // namespace tandem::transfer
