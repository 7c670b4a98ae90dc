#pragma once

#include "base/result.h"
#include "engine/limits.h"
#include "engine/request.h"

namespace tandem::engine {

/// What the engine refuses before it queues anything: kInvalidArgument names the field, what it
/// holds and what is allowed. Everything after this may rely on it.
Result<void> validate(const Request& request, const Limits& limits);

}  // namespace tandem::engine
