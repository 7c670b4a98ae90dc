#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"

namespace tandem {

enum class DeviceKind { kCpu, kCuda };

class Device;
class OpTimes;

/// A block of device memory. Owns it; freed by its device when destroyed.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device* device, void* data, size_t bytes) : device_(device), data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  template <typename T>
  std::span<T> span() const {
    return {static_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

/// An ordered queue of work on one device. Ops take a stream and dispatch on its kind. A CPU
/// stream runs each op to its end before the call returns. Used by one thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual DeviceKind kind() const = 0;

  /// Where ops report their times; null, the default: nowhere, and no clock is read.
  void set_op_times(OpTimes* times) { op_times_ = times; }
  OpTimes* op_times() const { return op_times_; }

 private:
  OpTimes* op_times_ = nullptr;
};

/// Where memory and streams come from. One per rank; outlives everything made from it.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  /// For start-up messages: "cpu (2 threads, avx512_bf16)".
  virtual std::string describe() const = 0;
  /// Memory aligned to at least 64 bytes; contents undefined. kResourceExhausted when there is
  /// not enough.
  virtual Result<Buffer> allocate(size_t bytes) = 0;
  virtual Result<std::unique_ptr<Stream>> make_stream() = 0;
  /// One for small work beside the steps: on the CPU its ops run on the calling thread alone.
  virtual Result<std::unique_ptr<Stream>> make_side_stream() = 0;
  /// Bytes that could still be allocated now.
  virtual size_t bytes_available() const = 0;

 protected:
  friend class Buffer;
  virtual void release(void* data, size_t bytes) = 0;
};

}  // namespace tandem
