#pragma once

#include <chrono>
#include <map>
#include <string>

#include "cluster/prefill_group.h"
#include "cluster/reporter.h"
#include "cluster/wire/worker_message.h"
#include "rpc/channel.h"

namespace tandem::cluster {

/// A prefill worker's process as the cluster sees it: answers the handshakes of decode workers,
/// passes their hand-off messages to its group and reports to routers. Owner's thread only.
class PrefillWorker final : public rpc::ChannelEvents {
 public:
  struct Options {
    Hello self;  ///< what this worker runs; its layout is the group's
    uint64_t generation = 0;
    io::ProcessName process;  ///< this one
    handoff::MessageLimits limits;
    std::chrono::milliseconds report_every{500};
    handoff::Prefiller::Options protocol;
  };
  /// `executor` and what the engine points to outlive this.
  PrefillWorker(Options options, PrefillGroup::Engine engine, std::vector<DataRank> ranks,
                io::Executor& executor);

  /// Before anything comes in: `channel` reports its events to this worker, and outlives it.
  void start(rpc::Channel& channel);
  /// For the engine's ExportPort.
  ExportEvents& exports() { return group_; }
  /// Takes no more prompts from routers' placements; what decode workers have begun goes on.
  void drain();
  bool is_idle() const { return group_.handoffs_count() == 0; }
  const PrefillGroup& group() const { return group_; }

  void on_connected(rpc::ConnectionId connection, const rpc::Peer& peer) override;
  void on_message(rpc::ConnectionId connection, std::string message) override;
  void on_call(rpc::ConnectionId connection, rpc::CallId call, std::string request) override;
  void on_call_cancelled(rpc::ConnectionId, rpc::CallId) override {}
  void on_closed(rpc::ConnectionId connection, const rpc::Peer& peer, const Error& reason) override;
  void on_connect_failed(const std::string&, const Error&) override {}

 private:
  void send(const handoff::Message& message);
  void welcome(rpc::ConnectionId connection, rpc::CallId call, const Hello& hello);
  void take_offer(rpc::ConnectionId connection, rpc::CallId call, LinkOffer offer);

  const Options options_;
  const engine::EngineClient& engine_;
  PrefillGroup group_;
  rpc::Channel* channel_ = nullptr;
  Reporter reporter_;
  std::map<handoff::LinkId, rpc::ConnectionId> links_;
  rpc::ConnectionId asking_;  ///< whose message is being handled; answers about links that are gone
  bool is_draining_ = false;
};

}  // namespace tandem::cluster
