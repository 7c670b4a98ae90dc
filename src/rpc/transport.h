#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "rpc/channel.h"

namespace tandem::rpc {

/// What travels on a connection. Each side's first frame is its hello.
struct Frame {
  enum class Kind : uint8_t {
    kHello = 1,  ///< payload: the sender's name; id: its generation; code: protocol version
    kMessage,    ///< payload: the message
    kCall,       ///< id: the call; payload: the request
    kAnswer,     ///< id: the call; code 0: payload is the answer, else 1 + Code and the text
    kCancel,     ///< id: the call
  };
  Kind kind = Kind::kMessage;
  uint64_t id = 0;
  uint32_t code = 0;
  std::string payload;

  static constexpr uint32_t kKindsCount = 5;
};

/// What a frame counts in a queue: short ones are not free.
inline size_t queue_bytes(const Frame& frame) {
  return frame.payload.size() + 64;
}
/// Whether a queue takes no more. So it holds at most one message more than queue_bytes_max.
inline bool is_full(const ChannelLimits& limits, size_t messages, size_t bytes) {
  return messages >= limits.queue_messages_max || bytes >= limits.queue_bytes_max;
}
inline Error queue_full(const std::string& peer, size_t messages, size_t bytes) {
  return make_error(Code::kResourceExhausted,
                    "\"" + peer + "\" does not take what is sent: " + std::to_string(messages) +
                        " messages of " + std::to_string(bytes) + " bytes wait");
}

/// What a transport tells its channel, on the owner's executor and never from within a call.
class TransportEvents {
 public:
  virtual ~TransportEvents() = default;
  /// A peer has come, and has proved that it belongs here. Nothing: there is no room for it.
  virtual std::optional<ConnectionId> on_incoming() = 0;
  virtual void on_frame(ConnectionId connection, Frame frame) = 0;
  /// The connection failed or never came about, or the peer closed it. Once; not after close().
  virtual void on_ended(ConnectionId connection, const Error& reason) = 0;
};

/// Carries frames between channels: the part that differs between the real and the virtual one.
/// One thread, the owner's.
class Transport {
 public:
  virtual ~Transport() = default;
  /// From here on events may come. Once.
  virtual void start(TransportEvents& events) = 0;
  /// One attempt. Frames may be sent at once; they wait for the connection.
  virtual void dial(ConnectionId connection, const std::string& address) = 0;
  /// kResourceExhausted when the connection's queue is full.
  virtual Result<void> send(ConnectionId connection, Frame frame) = 0;
  /// No event of this connection follows. Ids that have ended are ignored.
  virtual void close(ConnectionId connection, const Error& reason) = 0;
};

}  // namespace tandem::rpc
