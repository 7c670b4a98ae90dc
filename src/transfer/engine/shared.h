#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "transfer/types.h"

namespace tandem::transfer {

/// What the parts of one engine have in common. Outlives them; of the engine's thread.
struct EngineShared {
  const EngineOptions options;
  const std::vector<std::unique_ptr<Rail>> rails;
  const Clock clock;
  TimePoint now;  ///< of this progress()
  EngineCounts counts;
  std::vector<std::function<void()>> due;  ///< callbacks, made at the end of progress()
};

}  // namespace tandem::transfer
