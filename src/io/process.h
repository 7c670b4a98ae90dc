#pragma once

#include "base/result.h"
#include "io/open_file.h"

namespace tandem::io {

/// Whether a process of this host has this id, as this process numbers them.
bool process_exists(int process_id);

/// Notices the end of another process of this host, also when its id is used again. Owns a
/// descriptor of it. Any thread.
class ProcessWatch {
 public:
  /// kNotFound when there is no such process.
  static Result<ProcessWatch> open(int process_id);
  /// True from its end on, also before its parent has asked for it.
  bool has_ended() const;

 private:
  explicit ProcessWatch(FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {}
  FileDescriptor descriptor_;
};

}  // namespace tandem::io
