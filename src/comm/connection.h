#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/socket.h"

namespace tandem::comm {

/// What ranks tell each other outside the heap. The layout never changes between versions, so that
/// two versions can at least say that they differ.
struct Message {
  enum class Kind : uint8_t {
    kHello,     ///< to who leads a meeting: who I am; parts in hello.cc and regroup.cc
    kWelcome,   ///< from who leads: all are here; parts in rendezvous_host.cc and regroup.cc
    kRefused,   ///< from who leads: not so; the last part says why, in a rendezvous `rank` died or
                ///< is 0
    kAlive,     ///< now and then, so that silence can be logged
    kDeparted,  ///< `rank` is done
    kDied,      ///< `rank` is dead or gave up; parts = why
  };
  Kind kind = Kind::kAlive;
  uint32_t rank = 0;
  std::vector<std::string> parts;
};

/// The bytes of a message: length, kind, rank, number of parts, and each part with its length.
std::string encode(const Message& message);
/// Of the bytes after the length. kDataLoss for anything that encode does not write.
Result<Message> decode(std::string_view bytes);

/// A socket that carries messages. Owns it. One thread.
class Connection {
 public:
  explicit Connection(io::Socket socket) : socket_(std::move(socket)) {}

  Result<void> send(const Message& message, io::Deadline deadline);
  /// The next message. kUnavailable when the peer ended, kDeadlineExceeded when it is silent.
  Result<Message> receive(io::Deadline deadline);
  /// The next message if it has arrived whole. Never waits.
  Result<std::optional<Message>> take();

  /// Beside the messages: nothing else may be on its way to the receiver, who waits with nothing
  /// but receive_descriptor().
  Result<void> send_descriptor(const io::FileDescriptor& descriptor) {
    return socket_.send_descriptor(descriptor);
  }
  Result<io::FileDescriptor> receive_descriptor(io::Deadline deadline) {
    return socket_.receive_descriptor(deadline);
  }

  int descriptor() const { return socket_.descriptor(); }

 private:
  io::Socket socket_;
  std::string arrived_;  // the beginning of the next message, and perhaps more
};

}  // namespace tandem::comm
