#include "cpu/control_groups.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace tandem::cpu {
namespace {

namespace fs = std::filesystem;

/// Whether a list with commas has this entry.
bool is_listed(std::string_view wanted, std::string_view list) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == wanted) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

void append_along(std::vector<ControlGroup>& groups, const fs::path& mount,
                  const std::string& group, int version) {
  groups.push_back({mount, version});
  fs::path folder = mount;
  for (const fs::path& part : fs::path(group).relative_path()) {
    folder /= part;
    groups.push_back({folder, version});
  }
}

}  // namespace

std::vector<ControlGroup> control_groups(const fs::path& root, std::string_view controller) {
  std::ifstream file(root / "proc/self/cgroup");
  std::vector<ControlGroup> groups;
  for (std::string line; std::getline(file, line);) {  // number:controllers:path
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      append_along(groups, root / "sys/fs/cgroup", group, 2);
    } else if (is_listed(controller, controllers)) {
      append_along(groups, root / "sys/fs/cgroup" / controller, group, 1);
    }
  }
  return groups;
}

}  // namespace tandem::cpu
