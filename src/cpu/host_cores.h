#pragma once

#include <filesystem>
#include <optional>

namespace tandem::cpu {

/// Processor time that this process may use.
struct HostCores {
  int allowed = 1;  ///< cores that it may run on (its affinity; a container's CPU set)
  /// Cores' worth of time that the tightest control group around it allows (a container's CPU
  /// quota); nullopt: no group has a quota.
  std::optional<double> quota;

  /// Threads that can all run at once, at least one. A quota is rounded down: a group that has used
  /// up its time stands still for the rest of a period, and all threads of a step wait for it.
  int usable() const;
};

/// Asks the scheduler, and reads the CPU quotas of control groups, version 1 or 2. `root` is where
/// proc and sys are found; tests give a folder of their own.
HostCores read_host_cores(const std::filesystem::path& root = "/");

}  // namespace tandem::cpu
