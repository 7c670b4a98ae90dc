#pragma once

namespace tandem::cpu::internal {

/// Asks the kernel for the tile registers, for this process and all its threads. False when the
/// processor or the kernel does not give them.
bool enable_amx();

}  // namespace tandem::cpu::internal
