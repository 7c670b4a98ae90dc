// The router's workers: who is listed and connected, and what they say of themselves.
#include <algorithm>

#include "cluster/router.h"

namespace tandem::cluster {

// Membership.

void Router::on_joined(const rpc::Member& member) {
  const auto [found, is_new] = workers_.try_emplace(member.id);
  Worker& worker = found->second;
  const rpc::Member before = std::exchange(worker.member, member);
  worker.is_listed = true;
  board_.listed(member);
  const bool goes_on = worker.connection && before.address == member.address &&
                       links_.at(*worker.connection).generation == member.generation;
  if (goes_on) {
    // The board counts from 1 again, the connection does not.
    Link& link = links_.at(*worker.connection);
    link.numbers_before = link.number;
    board_.connected(member.id, link.generation);
  } else {
    if (!is_new) channel_->disconnect(member.id);
    connect(worker);
  }
  publish();
}

void Router::connect(Worker& worker) {
  worker.connection.reset();
  const auto connected = channel_->connect(worker.member.id, worker.member.address);
  if (!connected.ok()) board_.disconnected(worker.member.id, connected.error().what);
}

void Router::on_changed(const rpc::Member& member) {
  Worker& worker = workers_.at(member.id);
  const bool has_moved = worker.member.address != member.address;
  worker.member = member;
  board_.listed(member);
  if (has_moved) {
    channel_->disconnect(member.id);
    board_.disconnected(member.id, "its address has changed");
    connect(worker);
  }
  publish();
}

void Router::on_left(const rpc::Member& member) {
  workers_.at(member.id).is_listed = false;
  board_.left(member.id);
  disconnect_if_idle(member.id);
  publish();
}

/// A worker that is listed no more is let go with its last request.
void Router::disconnect_if_idle(const std::string& name) {
  const auto worker = workers_.find(name);
  if (channel_ == nullptr || worker == workers_.end() || worker->second.is_listed) return;
  const auto connection = worker->second.connection;
  if (connection && !links_.at(*connection).requests.empty()) return;
  channel_->disconnect(name);
  workers_.erase(worker);
}

// Connections.

void Router::on_connected(rpc::ConnectionId connection, const rpc::Peer& peer) {
  const auto worker = workers_.find(peer.name);
  if (worker == workers_.end() || worker->second.connection) {
    return channel_->close(connection, make_error(Code::kFailedPrecondition,
                                                  "routers connect to workers, nobody to them"));
  }
  worker->second.connection = connection;
  Link& link = links_[connection];
  link.worker = peer.name;
  link.generation = peer.generation;
  link.heard = timers_.now();
  if (worker->second.is_listed) board_.connected(peer.name, peer.generation);
  const auto sent = channel_->send(connection, encode(Subscribe{}, options_.wire));
  if (!sent.ok()) channel_->close(connection, sent.error());
  publish();
}

void Router::on_connect_failed(const std::string& name, const Error& error) {
  board_.disconnected(name, error.what);
  publish();
}

void Router::on_closed(rpc::ConnectionId connection, const rpc::Peer& peer, const Error& reason) {
  const auto link = links_.find(connection);
  if (link == links_.end()) return;  // refused at once
  const auto requests = std::move(link->second.requests);
  links_.erase(link);
  // After a new life is listed, the end of the old one's connection may come last.
  const auto worker = workers_.find(peer.name);
  if (worker != workers_.end() && worker->second.connection == connection) {
    worker->second.connection.reset();
    board_.disconnected(peer.name, reason.what);
    disconnect_if_idle(peer.name);
  }
  for (const auto& [id_there, id] : requests) retry(requests_.at(id), reason);
  publish();
  flush();
}

void Router::on_call(rpc::ConnectionId connection, rpc::CallId call, std::string) {
  channel_->reply(connection, call, make_error(Code::kUnimplemented, "routers answer no calls"));
}

/// It broke the protocol; what it has is lost when the channel says so.
void Router::refuse(rpc::ConnectionId connection, const Error& error) {
  board_.disconnected(links_.at(connection).worker, error.what);
  channel_->close(connection, error);
}

void Router::send_cancellation(rpc::ConnectionId connection, RequestId id_there) {
  const auto sent = channel_->send(connection, encode(CancelRequest{id_there}, options_.wire));
  // Full: again soon. Closed: cancelled with it.
  if (!sent.ok() && sent.error().code == Code::kResourceExhausted) {
    links_.at(connection).cancellations.push_back(id_there);
  }
}

// What workers say.

void Router::on_message(rpc::ConnectionId connection, std::string bytes) {
  const auto link = links_.find(connection);
  if (link == links_.end()) return;
  link->second.heard = timers_.now();
  auto message = decode_message(bytes, options_.wire);
  const Result<void> taken =
      message.ok() ? take(connection, *std::move(message)) : Result<void>(message.error());
  if (!taken.ok()) refuse(connection, with_context(taken.error(), "worker " + link->second.worker));
  flush();
}

/// Fails when it is not what a worker may say.
Result<void> Router::take(rpc::ConnectionId connection, WorkerMessage message) {
  if (auto* events = std::get_if<Events>(&message)) {
    for (engine::Event& event : events->events) TANDEM_TRY(pass_on(connection, std::move(event)));
    return {};
  }
  if (auto* report = std::get_if<Report>(&message)) {
    take_report(connection, std::move(*report));
    return {};
  }
  if (const auto* mismatched = std::get_if<Mismatched>(&message)) {
    board_.mismatched(links_.at(connection).worker, mismatched->prefill_worker, mismatched->reason);
    publish();
    return {};
  }
  return make_error(Code::kInvalidArgument, "that is not said to a router");
}

void Router::take_report(rpc::ConnectionId connection, Report report) {
  Link& link = links_.at(connection);
  WorkerReport figures{.queued_tokens = report.queued_tokens,
                       .page_tokens = report.page_tokens,
                       .model_length_max = report.model_length_max,
                       .draining = report.draining};
  figures.requests_included =
      report.requests_included - std::min(report.requests_included, link.numbers_before);
  for (const engine::EngineStatus& group : report.groups) {
    figures.ranks.push_back(
        {.ready = group.ready,
         .pages_total = group.pages_total,
         .pages_free = group.pages_total - std::min(group.pages_total, group.pages_used),
         .requests_waiting = group.requests_waiting});
  }
  board_.reported(link.worker, std::move(figures));
  link.groups = std::move(report.groups);
  publish();
}

/// Runs several times within the time of silence.
void Router::check_silence() {
  timers_.after(options_.silence / 4, [this] { check_silence(); });
  for (auto& [connection, link] : links_) {
    const auto worker = workers_.find(link.worker);
    const bool is_current = worker != workers_.end() && worker->second.connection == connection;
    const bool is_silent = timers_.now() - link.heard > options_.silence;
    if (is_current && is_silent) board_.silent(link.worker);
    for (const RequestId id_there : std::exchange(link.cancellations, {})) {
      send_cancellation(connection, id_there);
    }
  }
  publish();
}

void Router::publish() {
  std::vector<engine::EngineStatus> groups;
  uint32_t pages_leased = 0;
  for (const auto& [connection, link] : links_) {
    const auto worker = workers_.find(link.worker);
    if (worker == workers_.end()) continue;
    if (worker->second.member.role == rpc::Role::kDecode) {
      groups.insert(groups.end(), link.groups.begin(), link.groups.end());
    } else {
      pages_leased += engine::sum_of(link.groups).pages_leased;
    }
  }
  engine::EngineStatus status = engine::sum_of(groups);
  status.pages_leased += pages_leased;
  std::string missing;
  for (const std::string& line : board_.missing()) {
    missing += (missing.empty() ? "" : "; ") + line;
  }
  if (!missing.empty()) status.reason = std::move(missing);
  status.ready = board_.can_serve();
  const std::lock_guard lock(mutex_);
  published_ = std::move(status);
}

}  // namespace tandem::cluster
