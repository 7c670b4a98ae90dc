#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace tandem::cpu {

/// The folder of one control group, and the version whose file names it has.
struct ControlGroup {
  std::filesystem::path folder;
  int version = 2;
};

/// The groups that rule a resource ("memory", "cpu") for this process: its own and those around it,
/// at their usual mount points. A folder may not exist: in a container the path may be the host's,
/// and then only the mount point, which is the container's own group, does. `root` is where proc
/// and sys are found.
std::vector<ControlGroup> control_groups(const std::filesystem::path& root,
                                         std::string_view controller);

}  // namespace tandem::cpu
