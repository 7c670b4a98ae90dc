#pragma once

#include "base/result.h"
#include "engine/limits.h"
#include "engine/request.h"

namespace tandem::engine {

/// Limits that no engine can run with. Asked before weights are loaded, and again by the engine.
Result<void> validate(const Limits& limits);

/// What the engine refuses before it queues anything: kInvalidArgument names the field, what it
/// holds and what is allowed. Everything after this may rely on it.
Result<void> validate(const Request& request, const Limits& limits);

}  // namespace tandem::engine
