#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cluster/wire/worker_message.h"
#include "cluster/worker_board.h"
#include "engine/request.h"
#include "io/executor.h"
#include "io/post_box.h"
#include "io/timers.h"
#include "rpc/channel.h"
#include "rpc/membership.h"

namespace tandem::cluster {

/// All workers of a cluster as one engine: places each request, passes its events on, and starts it
/// anew elsewhere when its worker is lost before the first token. Exactly one event of a request
/// has `finish`, whatever becomes of the workers.
///
/// submit(), cancel() and status() from any thread; all else is the owner's, and sinks are called
/// on the owner's thread.
class Router final : public engine::EngineClient,
                     public rpc::ChannelEvents,
                     public rpc::MembershipEvents {
 public:
  struct Options {
    WorkerBoard::Options board;
    WireLimits wire;
    uint32_t requests_max = 4'096;     ///< in flight
    uint64_t tokens_max = 16'777'216;  ///< of their prompts together, which are kept to retry
    uint32_t attempts_max = 3;         ///< at a request, the first one included
    std::chrono::milliseconds silence{2'000};  ///< after which a worker gets nothing new
  };
  /// `executor` outlives this.
  Router(Options options, io::Executor& executor);
  /// Ends what lives with kUnavailable. Nobody submits any more, and the channel and the membership
  /// are gone.
  ~Router() override;

  /// Before anything comes in: `channel` reports its events here.
  void start(rpc::Channel& channel);

  /// kResourceExhausted names the bound that is met, kInvalidArgument what no worker would
  /// understand. All else comes as the request's last event: kUnavailable when nobody can serve it,
  /// or its worker is lost after its first token.
  Result<void> submit(engine::Request request, engine::EventSink& sink) override;
  void cancel(RequestId id) override;
  /// Sums over the decode groups as last reported, and the pages that prefill workers lease; ready
  /// while some request could be served. The reason says all that is missing.
  engine::EngineStatus status() const override;

  void on_connected(rpc::ConnectionId connection, const rpc::Peer& peer) override;
  void on_message(rpc::ConnectionId connection, std::string message) override;
  void on_closed(rpc::ConnectionId connection, const rpc::Peer& peer, const Error& reason) override;
  void on_connect_failed(const std::string& name, const Error& error) override;
  void on_call(rpc::ConnectionId connection, rpc::CallId call, std::string request) override;
  void on_call_cancelled(rpc::ConnectionId, rpc::CallId) override {}

  void on_joined(const rpc::Member& member) override;
  void on_changed(const rpc::Member& member) override;
  /// Its requests go on while its connection does.
  void on_left(const rpc::Member& member) override;

 private:
  struct Request {
    engine::Request request;
    engine::EventSink* sink;
    std::vector<Assignment> attempts;  ///< the last one is under way
    rpc::ConnectionId connection;      ///< of that one, with its id there
    RequestId id_there;
    uint32_t tokens = 0;  ///< passed on
  };
  struct Link {
    std::string worker;
    uint64_t generation = 0;
    io::Time heard{};
    uint64_t numbers_before = 0;  ///< of Submit, when the board began to count
    uint64_t number = 0;          ///< of the last Submit
    uint64_t ids_made = 0;
    std::map<RequestId, RequestId> requests;  ///< of the connection, to the client's
    std::vector<RequestId> cancellations;     ///< that found the queue full
    std::vector<engine::EngineStatus> groups;
  };
  struct Worker {
    rpc::Member member;
    std::optional<rpc::ConnectionId> connection;
    bool is_listed = true;  ///< else it only ends what it has
  };

  // Requests (router.cc).
  void place(engine::Request request, engine::EventSink& sink);
  void assign(Request& request);
  Result<void> send(Request& request, const Assignment& assignment);
  void cancel_now(RequestId id);
  Result<void> pass_on(rpc::ConnectionId connection, engine::Event event);
  /// Its worker cannot go on with it: again elsewhere, or its end.
  void retry(Request& request, const Error& why);
  void detach(Request& request);
  void emit(engine::EventSink& sink, engine::Event event);
  void end(Request& request, engine::FinishReason finish, std::optional<Error> error);
  void forget(const Request& request);
  void flush();

  // Workers (router_workers.cc).
  Result<void> take(rpc::ConnectionId connection, WorkerMessage message);
  void take_report(rpc::ConnectionId connection, Report report);
  void refuse(rpc::ConnectionId connection, const Error& error);
  void connect(Worker& worker);
  void disconnect_if_idle(const std::string& name);
  void send_cancellation(rpc::ConnectionId connection, RequestId id_there);
  void check_silence();
  void publish();

  const Options options_;
  io::Timers timers_;
  rpc::Channel* channel_ = nullptr;
  WorkerBoard board_;
  std::map<std::string, Worker> workers_;
  std::map<rpc::ConnectionId, Link> links_;
  std::unordered_map<RequestId, Request> requests_;
  std::vector<std::pair<engine::EventSink*, engine::Event>> outbox_;

  mutable std::mutex mutex_;
  uint64_t requests_count_ = 0;     // guarded by mutex_: in flight, with those in the box
  uint64_t tokens_count_ = 0;       // guarded by mutex_: of their prompts
  engine::EngineStatus published_;  // guarded by mutex_
  io::PostBox box_;
};

}  // namespace tandem::cluster
