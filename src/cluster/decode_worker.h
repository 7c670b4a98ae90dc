#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cluster/decode_group.h"
#include "cluster/event_port.h"
#include "cluster/reporter.h"
#include "cluster/wire/worker_message.h"
#include "engine/request.h"
#include "rpc/channel.h"
#include "rpc/membership.h"

namespace tandem::cluster {

/// A decode worker's process as the cluster sees it: takes requests of routers, gives each to one
/// of its groups, meets every prefill worker that is listed, and reports. Owner's thread only.
class DecodeWorker final : public rpc::ChannelEvents, public rpc::MembershipEvents {
 public:
  struct Options {
    std::string name;  ///< as it is listed
    Hello self;        ///< what this worker runs; its layout is that of every group
    handoff::MessageLimits limits;
    std::chrono::milliseconds report_every{500};
    std::chrono::milliseconds handshake_max{10'000};
    std::chrono::milliseconds handshake_again{200};  ///< after one that failed
    DecodeGroup::Options group;                      ///< but for its name
    /// Makes what says whether a prefill worker's process has ended, or nothing where it cannot be
    /// known: on another host.
    std::function<std::function<bool()>(const io::ProcessName&)> watch =
        [](const io::ProcessName&) { return nullptr; };
  };
  struct Group {
    engine::EngineClient* engine = nullptr;
    engine::KvImport* imports = nullptr;
    std::vector<DataRank> ranks;  ///< of its tensor-parallel group
  };
  /// `events` is of all groups. It, `executor` and the engines outlive this.
  DecodeWorker(Options options, std::vector<Group> groups, EventPort& events,
               io::Executor& executor);

  /// Before anything comes in: `channel` reports its events to this worker, and outlives it.
  void start(rpc::Channel& channel);
  /// For the ReservationPort of a group's engine.
  ReservationEvents& reservations(size_t group) { return *groups_[group].handoffs; }
  /// Takes no more requests.
  void drain();
  bool is_idle() const { return requests_.empty(); }
  const DecodeGroup& group(size_t group) const { return *groups_[group].handoffs; }

  void on_connected(rpc::ConnectionId connection, const rpc::Peer& peer) override;
  void on_message(rpc::ConnectionId connection, std::string message) override;
  void on_call(rpc::ConnectionId connection, rpc::CallId call, std::string request) override;
  void on_call_cancelled(rpc::ConnectionId, rpc::CallId) override {}
  void on_closed(rpc::ConnectionId connection, const rpc::Peer& peer, const Error& reason) override;
  void on_connect_failed(const std::string&, const Error&) override {}

  void on_joined(const rpc::Member& member) override;
  void on_changed(const rpc::Member& member) override;
  void on_left(const rpc::Member& member) override;

 private:
  struct OneGroup {
    engine::EngineClient* engine;
    std::unique_ptr<DecodeGroup> handoffs;
  };
  struct Request {
    rpc::ConnectionId router;  ///< none when it is gone
    RequestId of_router;
    uint32_t group = 0;
  };
  struct Link {
    rpc::ConnectionId connection;
    size_t group = 0;
  };

  static engine::EngineStatus status_of(const OneGroup& group);
  // Requests of routers.
  void submit(rpc::ConnectionId router, Submit submit);
  void cancel(rpc::ConnectionId router, RequestId of_router);
  void on_events(std::vector<engine::Event> events);
  void tell(rpc::ConnectionId router, std::vector<engine::Event> events);
  void refuse(rpc::ConnectionId router, RequestId of_router, Error error);

  // Prefill workers.
  void greet(rpc::ConnectionId connection);
  void greet_again(rpc::ConnectionId connection);
  void on_welcome(rpc::ConnectionId connection, Result<std::string> answer);
  void offer_link(rpc::ConnectionId connection, size_t group, const LinkOffer& offer);
  void send(const handoff::Message& message);
  void break_link(handoff::LinkId link);
  void take_handoff(rpc::ConnectionId connection, const HandoffBytes& carried);
  void note_mismatch(const std::string& prefill_worker, const std::string& reason);
  void tell_mismatch(rpc::ConnectionId router, const std::string& prefill_worker,
                     const std::string& reason);

  const Options options_;
  io::Timers timers_;
  EventPort& events_;
  std::vector<OneGroup> groups_;
  rpc::Channel* channel_ = nullptr;
  Reporter reporter_;
  std::map<RequestId, Request> requests_;
  std::map<std::pair<rpc::ConnectionId, RequestId>, RequestId> by_router_;
  uint64_t requests_made_ = 0;
  std::map<std::string, std::string> addresses_;              ///< of prefill workers, by name
  std::map<rpc::ConnectionId, std::string> prefill_workers_;  ///< connected
  std::map<std::string, std::string> mismatches_;             ///< reasons, by prefill worker
  std::set<rpc::ConnectionId> routers_;                       ///< that have subscribed
  std::map<handoff::LinkId, Link> links_;
  bool is_draining_ = false;
};

}  // namespace tandem::cluster
