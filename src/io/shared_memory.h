#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "io/open_file.h"

namespace tandem::io {

/// Memory that several threads or processes of one host map (memfd). Owns one mapping of it. The
/// bytes start as zero, are reserved at creation, never change their number, and live until the
/// last mapping and descriptor are gone, whoever made them.
class SharedMemory {
 public:
  /// kResourceExhausted, with the size, when the host cannot hold `bytes`.
  static Result<SharedMemory> create(size_t bytes);
  /// Maps what another process created. kDataLoss when it is not exactly `bytes` long.
  static Result<SharedMemory> map(FileDescriptor descriptor, size_t bytes);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  std::span<std::byte> bytes() const { return bytes_; }
  /// To be handed to another process.
  const FileDescriptor& descriptor() const { return descriptor_; }

 private:
  SharedMemory(FileDescriptor descriptor, std::span<std::byte> bytes)
      : descriptor_(std::move(descriptor)), bytes_(bytes) {}

  FileDescriptor descriptor_;
  std::span<std::byte> bytes_;
};

}  // namespace tandem::io
