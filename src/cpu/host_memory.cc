#include "cpu/host_memory.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

namespace tandem::cpu {
namespace {

namespace fs = std::filesystem;

/// How one version of control groups spells what we read.
struct Spelling {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* inactive_file;
  const char* active_file;
};
constexpr Spelling kVersion1{"sys/fs/cgroup/memory", "memory.limit_in_bytes",
                             "memory.usage_in_bytes", "total_inactive_file", "total_active_file"};
constexpr Spelling kVersion2{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file",
                             "active_file"};
// Version 1 writes "no limit" as the largest multiple of a page; no machine has 2^60 bytes.
constexpr size_t kNoLimit = size_t{1} << 60;

/// nullopt when the file is absent or holds no number ("max").
std::optional<size_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  size_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

/// The number behind `key` in a file of "key number" lines; 0 when it is not there.
size_t read_key(const fs::path& path, const std::string& wanted) {
  std::ifstream file(path);
  std::string key;
  for (size_t number = 0; file >> key >> number;) {
    if (key == wanted) return number;
  }
  return 0;
}

/// Whether a list with commas has this entry.
bool is_listed(std::string_view wanted, std::string_view list) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == wanted) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

/// What one group leaves. File pages count as used but are dropped when memory runs short.
std::optional<size_t> left_in_group(const fs::path& folder, const Spelling& names) {
  const auto limit = read_number(folder / names.limit);
  if (!limit || *limit >= kNoLimit) return std::nullopt;
  const size_t used = read_number(folder / names.usage).value_or(0);
  const size_t files = read_key(folder / "memory.stat", names.inactive_file) +
                       read_key(folder / "memory.stat", names.active_file);
  const size_t held = used - std::min(used, files);
  return *limit - std::min(*limit, held);
}

void take_smaller(std::optional<size_t>& least, std::optional<size_t> value) {
  if (value && (!least || *value < *least)) least = value;
}

/// The least that `group` and the groups around it leave. In a container the path may be the
/// host's: then only the mount point exists, which is the container's own group.
std::optional<size_t> left_along(const fs::path& mount, const std::string& group,
                                 const Spelling& names) {
  std::optional<size_t> least = left_in_group(mount, names);
  fs::path folder = mount;
  for (const fs::path& part : fs::path(group).relative_path()) {
    folder /= part;
    take_smaller(least, left_in_group(folder, names));
  }
  return least;
}

std::optional<size_t> group_bytes(const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  std::optional<size_t> least;
  for (std::string line; std::getline(file, line);) {  // number:controllers:path
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      take_smaller(least, left_along(root / kVersion2.mount, group, kVersion2));
    } else if (is_listed("memory", controllers)) {
      take_smaller(least, left_along(root / kVersion1.mount, group, kVersion1));
    }
  }
  return least;
}

}  // namespace

HostMemory read_host_memory(const fs::path& root) {
  HostMemory memory;
  std::ifstream file(root / "proc/meminfo");
  std::string key, unit;
  // MemAvailable counts page cache that can be dropped, which the free pages do not.
  for (size_t kib = 0; file >> key >> kib >> unit;) {
    if (key == "MemAvailable:") memory.machine_bytes = kib * 1024;
  }
  memory.group_bytes = group_bytes(root);
  return memory;
}

}  // namespace tandem::cpu
