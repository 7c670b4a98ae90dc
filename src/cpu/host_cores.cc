#include "cpu/host_cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>

#include "cpu/control_groups.h"

namespace tandem::cpu {
namespace {

namespace fs = std::filesystem;

int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

/// Version 2 writes "quota period" in one file, or "max period"; version 1 has a file for each, and
/// -1 for none. Both count microseconds.
std::optional<double> quota_of(const ControlGroup& group) {
  double quota_us = 0;
  double period_us = 0;
  if (group.version == 2) {
    std::ifstream file(group.folder / "cpu.max");
    if (!(file >> quota_us >> period_us)) return std::nullopt;
  } else {
    std::ifstream quota(group.folder / "cpu.cfs_quota_us");
    std::ifstream period(group.folder / "cpu.cfs_period_us");
    if (!(quota >> quota_us) || !(period >> period_us)) return std::nullopt;
  }
  if (quota_us <= 0 || period_us <= 0) return std::nullopt;
  return quota_us / period_us;
}

}  // namespace

int HostCores::usable() const {
  if (!quota || *quota >= allowed) return allowed;
  return std::max(1, static_cast<int>(*quota));
}

HostCores read_host_cores(const fs::path& root) {
  HostCores cores{.allowed = allowed_cores()};
  for (const ControlGroup& group : control_groups(root, "cpu")) {
    const auto quota = quota_of(group);
    if (quota && (!cores.quota || *quota < *cores.quota)) cores.quota = quota;
  }
  return cores;
}

}  // namespace tandem::cpu
