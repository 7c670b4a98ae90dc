#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "io/executor.h"
#include "io/timers.h"
#include "rpc/channel.h"
#include "rpc/redial.h"
#include "rpc/transport.h"

namespace tandem::rpc {

/// The channel over any transport: names, calls, deadlines, limits and redialling, which are thus
/// the same in the simulator and over the network. Owns the transport.
class ChannelCore final : public Channel, private TransportEvents {
 public:
  /// kInvalidArgument names an option that is out of range.
  static Result<std::unique_ptr<Channel>> create(ChannelOptions options, io::Executor& executor,
                                                 ChannelEvents& events,
                                                 std::unique_ptr<Transport> transport);

  Result<void> connect(const std::string& name, const std::string& address) override;
  void disconnect(const std::string& name) override;
  Result<void> send(ConnectionId connection, std::string message) override;
  Result<CallId> call(ConnectionId connection, std::string request,
                      std::chrono::milliseconds time_max, Answer answer) override;
  void cancel(ConnectionId connection, CallId call) override;
  void reply(ConnectionId connection, CallId call, Result<std::string> answer) override;
  void close(ConnectionId connection, const Error& reason) override;
  ChannelStatus status() const override;

 private:
  struct PendingCall {
    Answer answer;
    io::TimerId deadline;
  };
  struct Connection {
    std::string link;          ///< name given to connect(); empty when the peer dialled
    std::string address;       ///< with a link
    std::optional<Peer> peer;  ///< since its hello
    bool closing = false;      ///< only on_closed is still to come
    io::Time since{};          ///< of the dial, then of the hello
    io::TimerId hello_deadline;
    uint64_t calls_made = 0;
    std::map<CallId, PendingCall> calls;  ///< of this side
    std::set<CallId> asked;               ///< of the peer, unanswered
  };
  /// A peer that is to be connected.
  struct Link {
    std::string address;
    Redial redial;
    std::optional<ConnectionId> connection;
    io::TimerId next_attempt;
  };

  ChannelCore(ChannelOptions options, io::Executor& executor, ChannelEvents& events,
              std::unique_ptr<Transport> transport);

  std::optional<ConnectionId> on_incoming() override;
  void on_frame(ConnectionId id, Frame frame) override;
  void on_ended(ConnectionId id, const Error& reason) override;

  void dial(const std::string& name);
  ConnectionId open(const std::string& link, const std::string& address);
  void on_hello(ConnectionId id, Connection& connection, Frame frame);
  Result<void> admit(ConnectionId id, const Connection& connection, const Frame& hello);
  void on_request(ConnectionId id, Connection& connection, Frame frame);
  void on_answer(Connection& connection, Frame frame);
  void on_call_deadline(ConnectionId id, CallId call);
  /// A connection that may be used: known, greeted, not closing.
  Connection* find_open(ConnectionId id);
  /// Answers and cancellations: the peer waits for them, so one that has no room is the end.
  void send_or_close(ConnectionId id, Frame frame);
  void refuse(ConnectionId id, Code code, std::string what);
  /// The end of a connection: later and from the executor, so that no event comes from a call.
  void finish_later(ConnectionId id, const Error& reason);
  void finish(ConnectionId id, const Error& reason);

  const ChannelOptions options_;
  ChannelEvents& events_;
  ChannelStatus status_;
  uint64_t ids_made_ = 0;
  uint64_t links_made_ = 0;
  std::map<ConnectionId, Connection> connections_;
  std::map<std::string, Link> links_;
  io::Timers timers_;
  std::unique_ptr<Transport> transport_;  ///< last: it ends first and calls nobody
};

}  // namespace tandem::rpc
