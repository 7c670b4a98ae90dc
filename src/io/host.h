#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace tandem::io {

/// The name of this machine, for messages.
std::string host_name();
int process_id();
/// Fills with random bytes that nobody can guess (getrandom).
Result<void> fill_random(std::span<std::byte> bytes);

}  // namespace tandem::io
