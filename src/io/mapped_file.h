#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace tandem::io {

/// A regular file seen as read-only memory; pages are read when first touched. Owns the mapping
/// and unmaps it; the file must keep its size while mapped (a page past a new end kills the
/// process). Moving keeps bytes() where they are. Reading is safe from any number of threads.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

  /// Starts reading a part of bytes() in the background. Advice: a failure costs time only.
  void prefetch(size_t offset, size_t length) const;

  /// Gives the memory of a part of bytes() back, whole pages around it included. The bytes stay
  /// readable; they are read from the file again.
  void drop(size_t offset, size_t length) const;

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  void advise(size_t offset, size_t length, int advice) const;

  std::span<const std::byte> bytes_;
};

}  // namespace tandem::io
