#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "io/open_file.h"

namespace tandem::io {

using Deadline = std::chrono::steady_clock::time_point;

/// Where a service listens.
struct Endpoint {
  std::string host;
  int port = 0;
  std::string text() const;
};
/// "host:port", "1.2.3.4:port" or "[::1]:port"; kInvalidArgument with an example otherwise.
Result<Endpoint> parse_endpoint(std::string_view text);

/// A connected stream of bytes. Owns it. One thread at a time. A call that waits does so until its
/// deadline (kDeadlineExceeded); an end of the other side is kUnavailable.
class Socket {
 public:
  /// One attempt; kUnavailable while nobody listens, also when the system joins the socket to
  /// itself (it may pick the asked-for port as the socket's own). The connection of a peer whose
  /// machine is gone ends after about four seconds; one whose process is only stopped stays.
  static Result<Socket> connect_tcp(const Endpoint& endpoint, Deadline deadline);
  /// To a local listener of this host and user; kNotFound when there is none.
  static Result<Socket> connect_local(const std::string& name);
  /// Two ends of one connection.
  static Result<std::pair<Socket, Socket>> make_pair();

  Result<void> send(std::span<const std::byte> bytes, Deadline deadline);
  /// Fills all of `bytes`.
  Result<void> receive(std::span<std::byte> bytes, Deadline deadline);
  /// Reads what is there, 0 when nothing is. Never waits.
  Result<size_t> receive_some(std::span<std::byte> bytes);

  /// Gives the other process a descriptor of its own for the same file. Local sockets only.
  Result<void> send_descriptor(const FileDescriptor& descriptor);
  Result<FileDescriptor> receive_descriptor(Deadline deadline);
  /// Of the process that made the other end of a local socket, as this process numbers it.
  int peer_process_id() const;

  int descriptor() const { return descriptor_.get(); }

 private:
  friend class Listener;
  explicit Socket(FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {}
  FileDescriptor descriptor_;
};

/// Accepts connections. Owns the listening socket. One thread.
class Listener {
 public:
  static Result<Listener> listen_tcp(const Endpoint& endpoint);
  /// Under a name of this host that is no file; it is gone with the listener. Others can see the
  /// name, but only processes of the same user are accepted.
  static Result<Listener> listen_local(const std::string& name);

  /// The next connection; none when the deadline comes first.
  Result<std::optional<Socket>> accept(Deadline deadline);
  /// The port of a TCP listener: the one asked for, or the one chosen for port 0.
  int port() const;
  /// Readable when a connection waits.
  int descriptor() const { return descriptor_.get(); }

 private:
  explicit Listener(FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {}
  FileDescriptor descriptor_;
};

/// Waits until one of the descriptors can be read (or has ended), at most `timeout`.
void wait_readable(std::span<const int> descriptors, std::chrono::milliseconds timeout);

}  // namespace tandem::io
