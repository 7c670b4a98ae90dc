#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/socket.h"

namespace tandem::transfer {

/// The other side of a test, forked while the program has one thread. Both talk over a socket, on
/// which a read also tells when the other side is gone.
class PeerProcess {
 public:
  using Body = std::function<void(io::Socket&)>;

  explicit PeerProcess(const Body& body) : PeerProcess(body, io::Socket::make_pair().value()) {}
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;
  ~PeerProcess() {
    if (process_id_ > 0) end(SIGKILL);
  }

  io::Socket& socket() { return socket_; }
  int process_id() const { return process_id_; }
  void signal(int number) const { ::kill(process_id_, number); }
  /// Sends the signal, if it is one, and waits for the end; its exit code, or -1.
  int end(int number) {
    if (number != 0) signal(number);
    int status = 0;
    ::waitpid(std::exchange(process_id_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  PeerProcess(const Body& body, std::pair<io::Socket, io::Socket> ends)
      : socket_(std::move(ends.first)), process_id_(::fork()) {
    if (process_id_ != 0) return;
    {
      const io::Socket own = std::move(socket_);  // so that the parent's end is the only one
    }
    body(ends.second);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }

  io::Socket socket_;
  int process_id_;
};

inline io::Deadline in_a_minute() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(60);
}

/// Bytes of known or unknown length over such a socket.
inline void give(io::Socket& socket, std::span<const std::byte> bytes) {
  const uint64_t count = bytes.size();
  ASSERT_TRUE(socket.send(std::as_bytes(std::span(&count, 1)), in_a_minute()).ok());
  ASSERT_TRUE(socket.send(bytes, in_a_minute()).ok());
}
inline std::vector<std::byte> take(io::Socket& socket) {
  uint64_t count = 0;
  EXPECT_TRUE(socket.receive(std::as_writable_bytes(std::span(&count, 1)), in_a_minute()).ok());
  std::vector<std::byte> bytes(count);
  EXPECT_TRUE(socket.receive(bytes, in_a_minute()).ok());
  return bytes;
}
template <typename T>
void give_value(io::Socket& socket, const T& value) {
  give(socket, std::as_bytes(std::span(&value, 1)));
}
template <typename T>
T take_value(io::Socket& socket) {
  const std::vector<std::byte> bytes = take(socket);
  T value{};
  EXPECT_EQ(bytes.size(), sizeof(T));
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof(T)));
  return value;
}

}  // namespace tandem::transfer
