#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

namespace tandem::cpu {

/// Memory that this process could still take.
struct HostMemory {
  size_t machine_bytes = 0;  ///< MemAvailable: free, or held by what can be dropped
  /// What the tightest control group around this process leaves; nullopt: no group has a limit.
  std::optional<size_t> group_bytes;

  size_t available_bytes() const {
    return group_bytes && *group_bytes < machine_bytes ? *group_bytes : machine_bytes;
  }
};

/// Reads /proc/meminfo and the memory limits of control groups, version 1 or 2, at their usual
/// mount points. `root` is where proc and sys are found; tests give a folder of their own.
HostMemory read_host_memory(const std::filesystem::path& root = "/");

}  // namespace tandem::cpu
