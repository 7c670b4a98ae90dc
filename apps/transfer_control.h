#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "io/socket.h"

namespace tandem::apps {

/// How the two sides of `bench transfer` talk beside what they measure: values and pieces of bytes
/// over one connection. Both run the same program. One thread.
class TransferControl {
 public:
  explicit TransferControl(io::Socket socket) : socket_(std::move(socket)) {}
  io::Socket& socket() { return socket_; }

  Result<void> send(std::span<const std::byte> bytes);
  Result<std::vector<std::byte>> receive();

  template <typename T>
  Result<void> send_value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return send(std::as_bytes(std::span(&value, 1)));
  }
  /// kInvalidArgument when the other side sent something else: another version of this program.
  template <typename T>
  Result<T> receive_value() {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::vector<std::byte> bytes = TANDEM_TRY(receive());
    T value{};
    if (bytes.size() != sizeof(T)) return other_version();
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

 private:
  static Error other_version();
  io::Socket socket_;
};

}  // namespace tandem::apps
