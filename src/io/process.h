#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "io/open_file.h"

namespace tandem::io {

/// Whether a process of this host has this id, as this process numbers them.
bool process_exists(int process_id);

/// One process in its life: also when its id is used again, and seen from other hosts.
struct ProcessName {
  std::string boot;            ///< of its host, since it was started last
  uint64_t id_namespace = 0;   ///< in which `id` counts
  uint64_t started_ticks = 0;  ///< since the boot
  int32_t id = 0;
  bool operator==(const ProcessName&) const = default;
};
/// The caller's own. kUnavailable where /proc does not say.
Result<ProcessName> own_process_name();

/// Notices the end of another process of this host, also when its id is used again. Owns a
/// descriptor of it. Any thread.
class ProcessWatch {
 public:
  /// kNotFound when there is no such process.
  static Result<ProcessWatch> open(int process_id);
  /// kNotFound also when that process is of another host, or numbered otherwise than here.
  static Result<ProcessWatch> open(const ProcessName& process);
  /// True from its end on, also before its parent has asked for it.
  bool has_ended() const;

 private:
  explicit ProcessWatch(FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {}
  FileDescriptor descriptor_;
};

}  // namespace tandem::io
