#include "cpu/host_memory.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "cpu/control_groups.h"

namespace tandem::cpu {
namespace {

namespace fs = std::filesystem;

/// How one version of control groups spells what we read.
struct Spelling {
  const char* limit;
  const char* usage;
  const char* inactive_file;
  const char* active_file;
};
constexpr Spelling kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                             "total_inactive_file", "total_active_file"};
constexpr Spelling kVersion2{"memory.max", "memory.current", "inactive_file", "active_file"};
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

/// The least that the groups around this process leave.
std::optional<size_t> group_bytes(const fs::path& root) {
  std::optional<size_t> least;
  for (const ControlGroup& group : control_groups(root, "memory")) {
    const auto left = left_in_group(group.folder, group.version == 2 ? kVersion2 : kVersion1);
    if (left && (!least || *left < *least)) least = left;
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
