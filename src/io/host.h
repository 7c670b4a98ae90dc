#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace tandem::io {

/// The name of this machine, for messages.
std::string host_name();
int process_id();
/// Bytes that could be used now without swapping; 0 when the system does not say.
size_t memory_available_bytes();
/// Fills with random bytes that nobody can guess (getrandom).
Result<void> fill_random(std::span<std::byte> bytes);
/// The same for one number.
Result<uint64_t> random_number();

}  // namespace tandem::io
