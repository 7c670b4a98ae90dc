#pragma once

#include <cstddef>
#include <filesystem>
#include <utility>

#include "base/result.h"

namespace tandem::io {

/// Owns one open file descriptor and closes it. Any one thread at a time.
class FileDescriptor {
 public:
  explicit FileDescriptor(int value) : value_(value) {}
  FileDescriptor(FileDescriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor();
  int get() const { return value_; }

 private:
  int value_;
};

/// A regular file opened for reading and its size at that moment.
struct OpenFile {
  FileDescriptor descriptor;
  size_t bytes = 0;
};

/// Opens a regular file. Folders, pipes and devices are errors: the first has no bytes and reading
/// the others could block for ever.
Result<OpenFile> open_file(const std::filesystem::path& path);

/// The Error of a failed call on `path`, from errno: "cannot open /a/b: Permission denied".
Error system_error(const char* verb, const std::filesystem::path& path, int error_number);

}  // namespace tandem::io
