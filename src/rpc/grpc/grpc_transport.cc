#include "rpc/grpc/grpc_transport.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "rpc/grpc/client_stream.h"
#include "rpc/grpc/credentials.h"
#include "rpc/grpc/exchange.grpc.pb.h"
#include "rpc/grpc/mailbox.h"
#include "rpc/grpc/server_stream.h"
#include "rpc/grpc/status.h"

namespace tandem::rpc {
namespace {

using FrameStream = Stream<wire::Frame, wire::Frame>;
using DialledStream = ClientStream<wire::Frame, wire::Frame>;
using IncomingStream = ServerStream<wire::Frame, wire::Frame>;

// What a frame has besides its payload: two varints of ten bytes, one of five, tags and a length.
constexpr int kFrameBytesMax = 64;

StreamLimits stream_limits(const ChannelLimits& limits) {
  return {.write_messages_max = limits.queue_messages_max,
          .write_bytes_max = limits.queue_bytes_max,
          .read_messages_max = 64,
          .read_bytes_max = limits.message_bytes_max};
}

wire::Frame wire_frame(Frame frame) {
  wire::Frame wire;
  wire.set_kind(static_cast<uint32_t>(frame.kind));
  wire.set_id(frame.id);
  wire.set_code(frame.code);
  wire.set_payload(std::move(frame.payload));
  return wire;
}

Frame frame_of(wire::Frame wire) {
  // Kinds of a newer release become 0, which no frame has: the channel refuses them.
  const uint32_t kind = wire.kind() <= Frame::kKindsCount ? wire.kind() : 0;
  return {static_cast<Frame::Kind>(kind), wire.id(), wire.code(),
          std::move(*wire.mutable_payload())};
}

/// A call that is not let in.
class Refusal final : public grpc::ServerBidiReactor<wire::Frame, wire::Frame> {
 public:
  explicit Refusal(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

/// The listening side: lets in who may come, up to a number, and keeps them for the owner.
class Door final : public wire::Exchange::CallbackService {
 public:
  Door(const GrpcChannelOptions& options, Mailbox& mailbox)
      : secret_(options.credentials.secret), limits_(options.channel.limits), mailbox_(mailbox) {}

  grpc::ServerBidiReactor<wire::Frame, wire::Frame>* Connect(
      grpc::CallbackServerContext* context) override {
    if (!shows_secret(*context, secret_)) {
      return new Refusal({grpc::StatusCode::UNAUTHENTICATED,
                          "the secret is wrong or missing; give all processes of the cluster the "
                          "same secret file"});
    }
    const std::lock_guard lock(mutex_);
    // Those that were dialled from here count as well; the channel draws the exact line.
    if (closed_ || mailbox_.live() >= 3 * limits_.connections_max) {
      return new Refusal({grpc::StatusCode::RESOURCE_EXHAUSTED, "no room for more connections"});
    }
    auto stream = std::make_unique<IncomingStream>(mailbox_, stream_limits(limits_), *context);
    IncomingStream* reactor = stream.get();
    waiting_.push_back(std::move(stream));
    mailbox_.news(reactor->id());
    return reactor;
  }

  /// Those who came since the last time.
  std::vector<std::unique_ptr<IncomingStream>> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(waiting_, {});
  }
  /// Nobody is let in from here on.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }

 private:
  const std::string secret_;
  const ChannelLimits limits_;
  Mailbox& mailbox_;
  std::mutex mutex_;
  bool closed_ = false;
  std::vector<std::unique_ptr<IncomingStream>> waiting_;
};

/// Owns all calls in both directions. Runs on the owner's executor.
class GrpcTransport final : public Transport, private io::Task {
 public:
  GrpcTransport(const GrpcChannelOptions& options, io::Executor& executor)
      : options_(options),
        executor_(executor),
        mailbox_(executor, *this),
        door_(options, mailbox_) {}

  ~GrpcTransport() override {
    door_.close();
    const grpc::Status gone(grpc::StatusCode::UNAVAILABLE, "its process ends");
    for (auto& stream : door_.take()) keep(std::move(stream), {});
    for (auto& [id, call] : calls_) call.stream->end(gone);
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    mailbox_.wait_until_done();
    executor_.forget(*this);
  }

  /// The port.
  Result<int> listen();

  void start(TransportEvents& events) override { events_ = &events; }

  void dial(ConnectionId id, const std::string& address) override {
    auto stream = std::make_unique<DialledStream>(mailbox_, stream_limits(options_.channel.limits));
    DialledStream& call = *stream;
    if (!options_.credentials.secret.empty()) {
      call.context().AddMetadata(kSecretKey, options_.credentials.secret);
    }
    keep(std::move(stream), id).address = address;
    // A channel of gRPC for each attempt: its own back-off would be a second one beside ours. The
    // call keeps it alive.
    const auto stub = wire::Exchange::NewStub(grpc::CreateCustomChannel(
        address, dialling_credentials(options_.credentials), arguments()));
    stub->async()->Connect(&call.context(), &call);
    call.start();
  }

  Result<void> send(ConnectionId id, Frame frame) override {
    const Call& call = calls_.at(streams_.at(id));
    if (call.stream->write(wire_frame(std::move(frame)))) return {};
    return queue_full(call.peer, call.stream->queued_messages(), call.stream->queued_bytes());
  }

  void close(ConnectionId id, const Error& reason) override {
    const auto found = streams_.find(id);
    if (found == streams_.end()) return;
    Call& call = calls_.at(found->second);
    call.connection.reset();
    call.stream->end(status_of(reason));
    streams_.erase(found);
  }

 private:
  struct Call {
    std::unique_ptr<FrameStream> stream;
    std::optional<ConnectionId> connection;  ///< until the channel has closed it
    std::string address;                     ///< when it was dialled
    std::string peer;                        ///< for messages: its name, or where it is
  };

  template <typename T>
  Call& keep(std::unique_ptr<T> stream, std::optional<ConnectionId> connection) {
    const StreamId id = stream->id();
    Call& call = calls_[id];
    call.stream = std::move(stream);
    call.connection = connection;
    if (connection) streams_.emplace(*connection, id);
    return call;
  }

  grpc::ChannelArguments arguments() const;
  void run() override;
  void welcome();
  void hand_over(StreamId id);
  void finish(StreamId id, const grpc::Status& status);

  const GrpcChannelOptions options_;
  io::Executor& executor_;
  TransportEvents* events_ = nullptr;
  Mailbox mailbox_;
  Door door_;
  std::map<StreamId, Call> calls_;
  std::map<ConnectionId, StreamId> streams_;
  std::unique_ptr<grpc::Server> server_;
};

grpc::ChannelArguments GrpcTransport::arguments() const {
  const ChannelTimes& times = options_.channel.times;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(options_.channel.limits.message_bytes_max) +
                                     kFrameBytesMax);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(times.silence_probe.count()));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(times.silence_max.count()));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Else channels to one address share a socket, also those that were given up.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Proxies of the environment are for the web, not for the cluster.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (!options_.tls_name.empty()) arguments.SetSslTargetNameOverride(options_.tls_name);
  return arguments;
}

Result<int> GrpcTransport::listen() {
  const ChannelTimes& times = options_.channel.times;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(options_.listen_address, listening_credentials(options_.credentials),
                           &port);
  builder.RegisterService(&door_);
  builder.SetMaxReceiveMessageSize(static_cast<int>(options_.channel.limits.message_bytes_max) +
                                   kFrameBytesMax);
  // By default two servers may share a port, and each would get some of the connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                             static_cast<int>(times.silence_probe.count()));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             static_cast<int>(times.silence_max.count()));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Peers may probe as often as they are told to; by default that is punished.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  // One connection carries one call.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 4);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) {
    return make_error(Code::kInvalidArgument,
                      "cannot listen on " + options_.listen_address +
                          "; is the port in use, and are the certificate and its key valid?");
  }
  return port;
}

void GrpcTransport::run() {
  welcome();
  for (const StreamId id : mailbox_.take_news()) hand_over(id);
  for (const auto& [id, status] : mailbox_.take_done()) finish(id, status);
}

void GrpcTransport::welcome() {
  for (auto& stream : door_.take()) {
    IncomingStream& call = *stream;
    const auto connection = events_->on_incoming();
    Call& kept = keep(std::move(stream), connection);
    kept.peer = "a peer that has come";
    if (connection) {
      call.start();
    } else {
      kept.stream->end({grpc::StatusCode::RESOURCE_EXHAUSTED, "no room for more connections"});
    }
  }
}

void GrpcTransport::hand_over(StreamId id) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;
  Call& call = found->second;
  for (wire::Frame& wire : call.stream->take()) {
    if (!call.connection) return;  // closed, perhaps by the frame before
    Frame frame = frame_of(std::move(wire));
    if (frame.kind == Frame::Kind::kHello) call.peer = frame.payload;
    events_->on_frame(*call.connection, std::move(frame));
  }
}

void GrpcTransport::finish(StreamId id, const grpc::Status& status) {
  // A call may be done before it was welcomed.
  welcome();
  hand_over(id);
  const auto found = calls_.find(id);
  const auto connection = found->second.connection;
  const std::string address = found->second.address;
  calls_.erase(found);
  if (!connection) return;
  streams_.erase(*connection);
  const Error error = error_of(status);
  events_->on_ended(*connection, address.empty() ? error : with_context(error, address));
}

}  // namespace

Result<ListeningTransport> make_grpc_transport(const GrpcChannelOptions& options,
                                               io::Executor& executor) {
  auto transport = std::make_unique<GrpcTransport>(options, executor);
  const int port = options.listen_address.empty() ? 0 : TANDEM_TRY(transport->listen());
  return ListeningTransport{std::move(transport), port};
}

}  // namespace tandem::rpc
