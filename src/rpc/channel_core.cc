#include "rpc/channel_core.h"

#include <utility>

namespace tandem::rpc {
namespace {

constexpr uint32_t kProtocolVersion = 1;
constexpr size_t kNameBytesMax = 128;
constexpr uint32_t kCodesCount = static_cast<uint32_t>(Code::kInternal) + 1;

Result<void> check(const ChannelOptions& options) {
  const auto& [self, limits, times, seed] = options;
  const auto bad = [](std::string what) { return make_error(Code::kInvalidArgument, what); };
  if (self.name.empty() || self.name.size() > kNameBytesMax) {
    return bad("a worker's name has 1 to 128 bytes, not " + std::to_string(self.name.size()));
  }
  if (limits.message_bytes_max == 0 || limits.queue_messages_max == 0 || limits.calls_max == 0 ||
      limits.connections_max == 0) {
    return bad("a limit of the channel is 0; each must be at least 1");
  }
  if (limits.queue_bytes_max < limits.message_bytes_max) {
    return bad("queue_bytes_max (" + std::to_string(limits.queue_bytes_max) +
               ") has no room for a message of message_bytes_max (" +
               std::to_string(limits.message_bytes_max) + ")");
  }
  for (const auto time : {times.hello_max, times.redial_first, times.redial_max,
                          times.silence_probe, times.silence_max}) {
    if (time.count() <= 0) return bad("a time of the channel is not positive");
  }
  return {};
}

Error closed_error() {
  return make_error(Code::kUnavailable, "the connection is closed; a new one is announced");
}

Frame answer_frame(CallId call, const Result<std::string>& answer, size_t bytes_max) {
  if (answer.ok() && answer->size() > bytes_max) {
    return answer_frame(
        call,
        make_error(Code::kInternal, "the answer has " + std::to_string(answer->size()) +
                                        " bytes, more than message_bytes_max (" +
                                        std::to_string(bytes_max) + ")"),
        bytes_max);
  }
  if (answer.ok()) return {Frame::Kind::kAnswer, call.value, 0, *answer};
  const Error& error = answer.error();
  return {Frame::Kind::kAnswer, call.value, 1 + static_cast<uint32_t>(error.code),
          error.what.substr(0, bytes_max)};
}

Result<std::string> answer_of(Frame frame) {
  if (frame.code == 0) return std::move(frame.payload);
  // A newer peer may know codes that this one does not.
  const Code code = frame.code <= kCodesCount ? static_cast<Code>(frame.code - 1) : Code::kInternal;
  return make_error(code, std::move(frame.payload));
}

}  // namespace

Result<std::unique_ptr<Channel>> ChannelCore::create(ChannelOptions options, io::Executor& executor,
                                                     ChannelEvents& events,
                                                     std::unique_ptr<Transport> transport) {
  TANDEM_TRY(check(options));
  return std::unique_ptr<Channel>(
      new ChannelCore(std::move(options), executor, events, std::move(transport)));
}

ChannelCore::ChannelCore(ChannelOptions options, io::Executor& executor, ChannelEvents& events,
                         std::unique_ptr<Transport> transport)
    : options_(std::move(options)),
      events_(events),
      timers_(executor),
      transport_(std::move(transport)) {
  transport_->start(*this);
}

// Connecting.

Result<void> ChannelCore::connect(const std::string& name, const std::string& address) {
  if (name == options_.self.name) {
    return make_error(Code::kInvalidArgument, "\"" + name + "\" is this worker's own name");
  }
  if (const auto found = links_.find(name); found != links_.end()) {
    return make_error(Code::kFailedPrecondition,
                      "\"" + name + "\" is being connected at " + found->second.address +
                          "; disconnect it before it is given " + address);
  }
  if (links_.size() >= options_.limits.connections_max) {
    return make_error(Code::kResourceExhausted,
                      "no room to connect \"" + name + "\": connections_max is " +
                          std::to_string(options_.limits.connections_max));
  }
  const uint64_t seed = options_.seed * 1'000'003 + ++links_made_;
  const auto link =
      links_.emplace(name, Link{address, Redial(options_.times, seed), std::nullopt, {}}).first;
  link->second.next_attempt = timers_.after({}, [this, name] { dial(name); });
  return {};
}

void ChannelCore::disconnect(const std::string& name) {
  const auto link = links_.find(name);
  if (link == links_.end()) return;
  timers_.cancel(link->second.next_attempt);
  const auto connection = link->second.connection;
  links_.erase(link);
  if (connection) close(*connection, make_error(Code::kCancelled, "disconnected"));
}

void ChannelCore::dial(const std::string& name) {
  Link& link = links_.at(name);
  const ConnectionId id = open(name, link.address);
  link.connection = id;
  transport_->dial(id, link.address);
  send_or_close(
      id, {Frame::Kind::kHello, options_.self.generation, kProtocolVersion, options_.self.name});
}

ConnectionId ChannelCore::open(const std::string& link, const std::string& address) {
  const ConnectionId id{++ids_made_};
  Connection& connection = connections_[id];
  connection.link = link;
  connection.address = address;
  connection.since = timers_.now();
  connection.hello_deadline = timers_.after(options_.times.hello_max, [this, id] {
    refuse(
        id, Code::kDeadlineExceeded,
        "did not say its name within " + std::to_string(options_.times.hello_max.count()) + " ms");
  });
  return id;
}

std::optional<ConnectionId> ChannelCore::on_incoming() {
  size_t incoming = 0;
  for (const auto& [id, connection] : connections_) incoming += connection.link.empty();
  if (incoming >= options_.limits.connections_max) return std::nullopt;
  const ConnectionId id = open("", "");
  // Through the executor: the transport does not know the id before this returns.
  timers_.after({}, [this, id] {
    const auto found = connections_.find(id);
    if (found == connections_.end() || found->second.closing) return;  // it has ended by now
    send_or_close(
        id, {Frame::Kind::kHello, options_.self.generation, kProtocolVersion, options_.self.name});
  });
  return id;
}

Result<void> ChannelCore::admit(ConnectionId id, const Connection& connection, const Frame& hello) {
  const std::string& name = hello.payload;
  const auto refusal = [](std::string what) {
    return make_error(Code::kFailedPrecondition, std::move(what));
  };
  if (hello.kind != Frame::Kind::kHello) return refusal("spoke before it said its name");
  if (hello.code != kProtocolVersion) {
    return refusal("speaks version " + std::to_string(hello.code) + " of the protocol, \"" +
                   options_.self.name + "\" speaks " + std::to_string(kProtocolVersion) +
                   "; run the same release of both");
  }
  if (name.empty() || name.size() > kNameBytesMax) return refusal("has a name of no valid length");
  if (name == options_.self.name) return refusal("has the name of this worker; names must differ");
  if (!connection.link.empty()) {
    if (name == connection.link) return {};
    return refusal("is \"" + name + "\", and \"" + connection.link + "\" was asked for");
  }
  for (const auto& [other_id, other] : connections_) {
    if (other_id == id || !other.link.empty() || !other.peer || other.peer->name != name) continue;
    if (other.peer->generation > hello.id) {
      return refusal("\"" + name + "\" of generation " + std::to_string(hello.id) +
                     " comes after generation " + std::to_string(other.peer->generation) +
                     " has connected; two workers may share that name");
    }
  }
  return {};
}

void ChannelCore::on_hello(ConnectionId id, Connection& connection, Frame frame) {
  if (auto admitted = admit(id, connection, frame); !admitted.ok()) {
    return refuse(id, admitted.error().code, admitted.error().what);
  }
  timers_.cancel(connection.hello_deadline);
  connection.peer = Peer{std::move(frame.payload), frame.id};
  connection.since = timers_.now();
  const Peer peer = *connection.peer;
  if (connection.link.empty()) {
    // Its older connections are of an earlier life, or dead without this side having noticed.
    for (auto& [other_id, other] : connections_) {
      if (other_id == id || !other.link.empty() || !other.peer || other.peer->name != peer.name) {
        continue;
      }
      close(other_id, make_error(Code::kUnavailable, "\"" + peer.name + "\" connected again"));
    }
  }
  events_.on_connected(id, peer);
}

// Traffic.

ChannelCore::Connection* ChannelCore::find_open(ConnectionId id) {
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second.closing || !found->second.peer) return nullptr;
  return &found->second;
}

void ChannelCore::on_frame(ConnectionId id, Frame frame) {
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second.closing) return;
  Connection& connection = found->second;
  if (frame.payload.size() > options_.limits.message_bytes_max) {
    return refuse(id, Code::kInvalidArgument,
                  "sent " + std::to_string(frame.payload.size()) +
                      " bytes at once; message_bytes_max is " +
                      std::to_string(options_.limits.message_bytes_max));
  }
  if (!connection.peer) return on_hello(id, connection, std::move(frame));
  switch (frame.kind) {
    case Frame::Kind::kHello:
      return refuse(id, Code::kInvalidArgument, "said its name twice");
    case Frame::Kind::kMessage:
      return events_.on_message(id, std::move(frame.payload));
    case Frame::Kind::kCall:
      return on_request(id, connection, std::move(frame));
    case Frame::Kind::kAnswer:
      return on_answer(connection, std::move(frame));
    case Frame::Kind::kCancel:
      // The answer may have crossed it on the way.
      if (connection.asked.erase(CallId{frame.id}) > 0) {
        events_.on_call_cancelled(id, CallId{frame.id});
      }
      return;
  }
  refuse(id, Code::kInvalidArgument, "sent a frame of no known kind");
}

void ChannelCore::on_request(ConnectionId id, Connection& connection, Frame frame) {
  const CallId call{frame.id};
  if (connection.asked.size() >= options_.limits.calls_max) {
    status_.refused_calls += 1;
    const Error full =
        make_error(Code::kResourceExhausted, "\"" + options_.self.name + "\" has not answered " +
                                                 std::to_string(options_.limits.calls_max) +
                                                 " earlier calls yet; ask again later");
    return send_or_close(id, answer_frame(call, full, options_.limits.message_bytes_max));
  }
  if (!connection.asked.insert(call).second) {
    return refuse(id, Code::kInvalidArgument, "used the number of a call twice");
  }
  events_.on_call(id, call, std::move(frame.payload));
}

void ChannelCore::on_answer(Connection& connection, Frame frame) {
  const auto call = connection.calls.find(CallId{frame.id});
  if (call == connection.calls.end()) {
    status_.late_answers += 1;
    return;
  }
  const Answer answer = std::move(call->second.answer);
  timers_.cancel(call->second.deadline);
  connection.calls.erase(call);
  answer(answer_of(std::move(frame)));
}

Result<void> ChannelCore::send(ConnectionId id, std::string message) {
  if (find_open(id) == nullptr) return closed_error();
  if (message.size() > options_.limits.message_bytes_max) {
    return make_error(Code::kInvalidArgument,
                      "the message has " + std::to_string(message.size()) +
                          " bytes, more than message_bytes_max (" +
                          std::to_string(options_.limits.message_bytes_max) + ")");
  }
  return transport_->send(id, {Frame::Kind::kMessage, 0, 0, std::move(message)});
}

Result<CallId> ChannelCore::call(ConnectionId id, std::string request,
                                 std::chrono::milliseconds time_max, Answer answer) {
  Connection* connection = find_open(id);
  if (connection == nullptr) return closed_error();
  if (request.size() > options_.limits.message_bytes_max) {
    return make_error(Code::kInvalidArgument,
                      "the request has " + std::to_string(request.size()) +
                          " bytes, more than message_bytes_max (" +
                          std::to_string(options_.limits.message_bytes_max) + ")");
  }
  if (connection->calls.size() >= options_.limits.calls_max) {
    return make_error(Code::kResourceExhausted, "\"" + connection->peer->name + "\" has " +
                                                    std::to_string(options_.limits.calls_max) +
                                                    " unanswered calls (calls_max)");
  }
  const CallId call{++connection->calls_made};
  TANDEM_TRY(transport_->send(id, {Frame::Kind::kCall, call.value, 0, std::move(request)}));
  const io::TimerId deadline =
      timers_.after(time_max, [this, id, call] { on_call_deadline(id, call); });
  connection->calls.emplace(call, PendingCall{std::move(answer), deadline});
  return call;
}

void ChannelCore::on_call_deadline(ConnectionId id, CallId call) {
  Connection* connection = find_open(id);
  if (connection == nullptr) return;  // its end answers all calls
  const Answer answer = std::move(connection->calls.at(call).answer);
  const std::string name = connection->peer->name;
  cancel(id, call);
  answer(make_error(Code::kDeadlineExceeded, "\"" + name + "\" did not answer in time"));
}

void ChannelCore::cancel(ConnectionId id, CallId call) {
  const auto connection = connections_.find(id);
  if (connection == connections_.end()) return;
  const auto found = connection->second.calls.find(call);
  if (found == connection->second.calls.end()) return;
  timers_.cancel(found->second.deadline);
  connection->second.calls.erase(found);
  if (!connection->second.closing) send_or_close(id, {Frame::Kind::kCancel, call.value, 0, {}});
}

void ChannelCore::reply(ConnectionId id, CallId call, Result<std::string> answer) {
  Connection* connection = find_open(id);
  if (connection == nullptr || connection->asked.erase(call) == 0) return;
  send_or_close(id, answer_frame(call, answer, options_.limits.message_bytes_max));
}

void ChannelCore::send_or_close(ConnectionId id, Frame frame) {
  if (auto sent = transport_->send(id, std::move(frame)); !sent.ok()) close(id, sent.error());
}

// Ends.

void ChannelCore::refuse(ConnectionId id, Code code, std::string what) {
  const Connection& connection = connections_.at(id);
  status_.refused_peers += 1;
  std::string who = "the peer";
  if (connection.peer) {
    who = "\"" + connection.peer->name + "\"";
  } else if (!connection.link.empty()) {
    who = "the peer at " + connection.address;
  }
  close(id, make_error(code, who + " " + std::move(what)));
}

void ChannelCore::close(ConnectionId id, const Error& reason) {
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second.closing) return;
  transport_->close(id, reason);
  finish_later(id, reason);
}

void ChannelCore::on_ended(ConnectionId id, const Error& reason) {
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second.closing) return;
  finish_later(id, reason);
}

void ChannelCore::finish_later(ConnectionId id, const Error& reason) {
  connections_.at(id).closing = true;
  timers_.after({}, [this, id, reason] { finish(id, reason); });
}

void ChannelCore::finish(ConnectionId id, const Error& reason) {
  Connection& connection = connections_.at(id);
  timers_.cancel(connection.hello_deadline);
  const std::string whom = connection.peer ? connection.peer->name : connection.link;
  // One by one: an answer may lead to the cancellation of another call.
  while (!connection.calls.empty()) {
    const auto call = connection.calls.begin();
    timers_.cancel(call->second.deadline);
    const Answer answer = std::move(call->second.answer);
    connection.calls.erase(call);
    answer(make_error(Code::kUnavailable, "the connection to \"" + whom +
                                              "\" ended before the answer: " + reason.what));
  }
  const std::optional<Peer> peer = connection.peer;
  const auto lived = peer ? timers_.now() - connection.since : io::Time::duration{};
  const auto link = links_.find(connection.link);
  const bool dials_again = link != links_.end() && link->second.connection == id;
  connections_.erase(id);
  if (dials_again) {
    link->second.connection.reset();
    link->second.next_attempt =
        timers_.after(link->second.redial.next(lived), [this, name = link->first] { dial(name); });
  }
  if (peer) {
    events_.on_closed(id, *peer, reason);
  } else if (dials_again) {
    events_.on_connect_failed(whom, reason);
  }
}

ChannelStatus ChannelCore::status() const {
  ChannelStatus status = status_;
  status.connections = connections_.size();
  return status;
}

}  // namespace tandem::rpc
