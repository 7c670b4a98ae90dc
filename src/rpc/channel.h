#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/strong_id.h"

namespace tandem::rpc {

/// One life of a connection; never used again.
using ConnectionId = StrongId<struct ConnectionTag, uint64_t>;
/// One call; unique among those of one side of a connection.
using CallId = StrongId<struct CallTag, uint64_t>;

/// Who is at the other end, by its own word: whoever holds the cluster's credentials may claim any
/// name. A process that starts again has a higher generation.
struct Peer {
  std::string name;  ///< 1 to 128 bytes
  uint64_t generation = 0;
};

/// What no peer can make this side exceed. All are at least 1.
struct ChannelLimits {
  size_t message_bytes_max = size_t{4} << 20;  ///< of one message, request or answer
  size_t queue_messages_max = 4096;            ///< of one connection, not yet on their way
  size_t queue_bytes_max = size_t{32} << 20;   ///< the same in bytes; >= message_bytes_max
  size_t calls_max = 256;                      ///< unanswered, of one connection and direction
  size_t connections_max = 256;                ///< that peers dialled; as many by connect()
};

struct ChannelTimes {
  std::chrono::milliseconds hello_max{5'000};      ///< from the first byte to knowing the name
  std::chrono::milliseconds redial_first{100};     ///< after a lost connection, then doubled
  std::chrono::milliseconds redial_max{5'000};     ///< ... up to this, each +- 20 %
  std::chrono::milliseconds silence_probe{2'000};  ///< a silent peer is asked for a sign of life
  std::chrono::milliseconds silence_max{3'000};    ///< and given up this much later
};

struct ChannelOptions {
  Peer self;
  ChannelLimits limits;
  ChannelTimes times;
  uint64_t seed = 0;  ///< of the redial times, so that peers do not come back all at once
};

/// What happens on connections. Called on the owner's executor, never from within a call of the
/// channel; may call the channel, but not destroy it.
class ChannelEvents {
 public:
  virtual ~ChannelEvents() = default;
  /// A peer that is dialled and dials itself has two connections.
  virtual void on_connected(ConnectionId connection, const Peer& peer) = 0;
  virtual void on_message(ConnectionId connection, std::string message) = 0;
  /// To be answered once by Channel::reply().
  virtual void on_call(ConnectionId connection, CallId call, std::string request) = 0;
  /// Nobody waits for the answer any more: its caller gave up or its time is over.
  virtual void on_call_cancelled(ConnectionId connection, CallId call) = 0;
  /// Exactly once for each on_connected, whoever closed; the last event of its connection. What
  /// was sent and not answered may or may not have arrived.
  virtual void on_closed(ConnectionId connection, const Peer& peer, const Error& reason) = 0;
  /// An attempt of connect() came to nothing; the next follows by itself.
  virtual void on_connect_failed(const std::string& name, const Error& error) = 0;
};

struct ChannelStatus {
  size_t connections = 0;      ///< of them some may not have said their name yet
  uint64_t late_answers = 0;   ///< to calls that nobody waits for
  uint64_t refused_calls = 0;  ///< of peers that had calls_max unanswered
  uint64_t refused_peers = 0;  ///< broke the protocol, or were not who they should be
};

/// How processes of a cluster talk: messages of opaque bytes to a named peer. On one connection
/// they arrive in order, each at most once; a connection that ends takes along what had not
/// arrived, and says so at both ends. A call is a message that waits for its answer.
///
/// Messages are the primitive because the protocols above are: a request, its cancellation and the
/// stream of its events must stay in order, and both sides speak unasked. Calls are for questions
/// with one answer, such as the handshake.
///
/// Nothing here blocks. One thread, the owner's. Destroying it closes everything, without events.
class Channel {
 public:
  using Answer = std::function<void(Result<std::string>)>;

  virtual ~Channel() = default;

  /// Keeps a connection to the peer of this name from now on: dials, and again after each loss.
  /// Another peer that answers at the address is refused. kFailedPrecondition when the name has an
  /// address already; kResourceExhausted at connections_max names.
  virtual Result<void> connect(const std::string& name, const std::string& address) = 0;
  /// Ends that; its connection is closed as by close(). Unknown names are ignored.
  virtual void disconnect(const std::string& name) = 0;

  /// Queues a message. kUnavailable: the connection is closed. kInvalidArgument: too long.
  /// kResourceExhausted: the peer does not take what is queued. A sender that cannot come back
  /// later closes the connection; dropping the message would break the order.
  virtual Result<void> send(ConnectionId connection, std::string message) = 0;

  /// Asks, and hands `answer` what the peer replied, or kDeadlineExceeded after `time_max`,
  /// kUnavailable when the connection ends before. Fails at once as send(); then `answer` is not
  /// called, else exactly once, unless the call is cancelled or the channel destroyed.
  virtual Result<CallId> call(ConnectionId connection, std::string request,
                              std::chrono::milliseconds time_max, Answer answer) = 0;
  /// Gives up a call of this side and tells the peer. `answer` is not called.
  virtual void cancel(ConnectionId connection, CallId call) = 0;
  /// Answers a call of the peer. Late ones, and those to calls that are gone, are ignored. An
  /// answer that is too long becomes kInternal for the caller.
  virtual void reply(ConnectionId connection, CallId call, Result<std::string> answer) = 0;

  /// Ends a connection at once: what is queued is lost. The peer is told the reason when it can
  /// be. A connection of connect() is dialled again.
  virtual void close(ConnectionId connection, const Error& reason) = 0;

  virtual ChannelStatus status() const = 0;
};

}  // namespace tandem::rpc
