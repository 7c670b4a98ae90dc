#pragma once

#include <filesystem>

namespace tandem::transfer {

/// Removes what endpoints of shm left in `folder` whose processes are gone: files named
/// "process:user:number", 16 MiB each, which stay after SIGKILL. How many were removed.
int sweep_shared_memory(const std::filesystem::path& folder = "/dev/shm");

}  // namespace tandem::transfer
