#include "cluster/decode_worker.h"

#include <algorithm>
#include <iterator>
#include <span>

namespace tandem::cluster {

DecodeWorker::DecodeWorker(Options options, std::vector<Group> groups, EventPort& events,
                           io::Executor& executor)
    : options_(std::move(options)),
      timers_(executor),
      events_(events),
      reporter_(executor, options_.report_every, [this] {
        Report report{.page_tokens = options_.self.layout.page_tokens,
                      .model_length_max = options_.self.model_length_max,
                      .draining = is_draining_,
                      .groups = {}};
        for (const OneGroup& group : groups_) report.groups.push_back(status_of(group));
        return report;
      }) {
  events_.connect([this](std::vector<engine::Event> told) { on_events(std::move(told)); });
  for (Group& group : groups) {
    DecodeGroup::Options of_group = options_.group;
    of_group.name = options_.name;
    if (groups.size() > 1) of_group.name += " rank " + std::to_string(groups_.size());
    of_group.link_seed += groups_.size();
    groups_.push_back({group.engine, std::make_unique<DecodeGroup>(
                                         std::move(of_group), *group.imports, options_.self.layout,
                                         std::move(group.ranks), executor,
                                         [this](const handoff::Message& m) { send(m); },
                                         [this](handoff::LinkId link) { break_link(link); })});
  }
}

/// Without a link no prompt would come back computed.
engine::EngineStatus DecodeWorker::status_of(const OneGroup& group) {
  engine::EngineStatus status = group.engine->status();
  if (status.ready && !group.handoffs->has_link()) {
    status.ready = false;
    status.reason = "it has no link to a prefill worker";
  }
  return status;
}

void DecodeWorker::start(rpc::Channel& channel) {
  channel_ = &channel;
  reporter_.start(channel);
}

void DecodeWorker::drain() {
  is_draining_ = true;
  reporter_.report();
}

void DecodeWorker::on_message(rpc::ConnectionId connection, std::string bytes) {
  auto message = decode_message(bytes, {});
  if (!message.ok()) return channel_->close(connection, message.error());
  if (auto* submitted = std::get_if<Submit>(&*message)) {
    submit(connection, std::move(*submitted));
  } else if (const auto* cancelled = std::get_if<CancelRequest>(&*message)) {
    cancel(connection, cancelled->request);
  } else if (const auto* carried = std::get_if<HandoffBytes>(&*message)) {
    take_handoff(connection, *carried);
  } else if (std::holds_alternative<Subscribe>(*message)) {
    routers_.insert(connection);
    reporter_.subscribe(connection);
    for (const auto& [worker, reason] : mismatches_) tell_mismatch(connection, worker, reason);
  } else {
    channel_->close(connection, make_error(Code::kInvalidArgument,
                                           "a worker sends what only routers are told; is this "
                                           "the address of another role?"));
  }
}

void DecodeWorker::on_call(rpc::ConnectionId connection, rpc::CallId call, std::string) {
  channel_->reply(connection, call,
                  make_error(Code::kInvalidArgument, "a decode worker answers no handshakes"));
}

void DecodeWorker::on_closed(rpc::ConnectionId connection, const rpc::Peer&, const Error&) {
  reporter_.closed(connection);
  routers_.erase(connection);
  prefill_workers_.erase(connection);
  for (auto& [id, request] : requests_) {
    if (request.router != connection) continue;
    by_router_.erase({connection, request.of_router});
    request.router = {};
    groups_[request.group].engine->cancel(id);
  }
  std::vector<std::pair<handoff::LinkId, size_t>> lost;
  for (const auto& [link, of] : links_) {
    if (of.connection == connection) lost.emplace_back(link, of.group);
  }
  for (const auto& [link, group] : lost) {
    links_.erase(link);
    groups_[group].handoffs->link_lost(link);
  }
  if (!lost.empty()) reporter_.report();
}

// Requests of routers.

void DecodeWorker::submit(rpc::ConnectionId router, Submit submit) {
  const RequestId of_router = submit.request.id;
  reporter_.submitted(router, submit.number);
  if (by_router_.contains({router, of_router})) {
    return channel_->close(router, make_error(Code::kInvalidArgument,
                                              "two requests of one connection have the same id"));
  }
  if (is_draining_) {
    return refuse(router, of_router,
                  make_error(Code::kUnavailable, options_.name + " takes no more requests"));
  }
  if (submit.group >= groups_.size()) {
    return refuse(router, of_router,
                  make_error(Code::kInvalidArgument, options_.name + " has no decode group " +
                                                         std::to_string(submit.group)));
  }
  const OneGroup& group = groups_[submit.group];
  const RequestId id{++requests_made_};
  group.handoffs->expect(id, {.prefill_worker = std::move(submit.prefill_worker),
                              .cache_salt = submit.request.cache_salt});
  submit.request.id = id;
  submit.request.kv_way = engine::KvWay::kImport;
  const Result<void> taken = group.engine->submit(std::move(submit.request), events_);
  if (!taken.ok()) {
    group.handoffs->forget(id);
    return refuse(router, of_router, taken.error());
  }
  requests_[id] = {router, of_router, submit.group};
  by_router_[{router, of_router}] = id;
}

void DecodeWorker::refuse(rpc::ConnectionId router, RequestId of_router, Error error) {
  std::vector<engine::Event> events(1);
  events[0].id = of_router;
  events[0].finish = engine::FinishReason::kError;
  events[0].error = std::move(error);
  tell(router, std::move(events));
}

void DecodeWorker::cancel(rpc::ConnectionId router, RequestId of_router) {
  const auto id = by_router_.find({router, of_router});
  if (id == by_router_.end()) return;
  groups_[requests_.at(id->second).group].engine->cancel(id->second);
}

void DecodeWorker::on_events(std::vector<engine::Event> events) {
  std::map<rpc::ConnectionId, std::vector<engine::Event>> by_connection;
  for (engine::Event& event : events) {
    const auto request = requests_.find(event.id);
    TANDEM_CHECK(request != requests_.end(), "an engine tells nothing after the end");
    const Request of = request->second;
    if (event.finish) {
      groups_[of.group].handoffs->forget(event.id);
      by_router_.erase({of.router, of.of_router});
      requests_.erase(request);
    }
    if (of.router == rpc::ConnectionId{}) continue;
    event.id = of.of_router;
    by_connection[of.router].push_back(std::move(event));
  }
  for (auto& [router, of_router] : by_connection) tell(router, std::move(of_router));
}

/// A router that does not take its events would get a stream with holes, so it loses the
/// connection, and with it its requests.
void DecodeWorker::tell(rpc::ConnectionId router, std::vector<engine::Event> events) {
  const size_t most = WireLimits{}.list_max;
  for (size_t first = 0; first < events.size(); first += most) {
    const auto begin = events.begin() + static_cast<ptrdiff_t>(first);
    const auto end = begin + static_cast<ptrdiff_t>(std::min(most, events.size() - first));
    const Events part{{std::move_iterator(begin), std::move_iterator(end)}};
    const auto sent = channel_->send(router, encode(WorkerMessage(part)));
    if (!sent.ok()) return channel_->close(router, sent.error());
  }
}

// Prefill workers.

void DecodeWorker::on_joined(const rpc::Member& member) {
  if (member.role != rpc::Role::kPrefill) return;
  addresses_[member.id] = member.address;
  const auto connecting = channel_->connect(member.id, member.address);
  if (!connecting.ok()) note_mismatch(member.id, connecting.error().what);
}

void DecodeWorker::on_changed(const rpc::Member& member) {
  const auto known = addresses_.find(member.id);
  if (known == addresses_.end() || known->second == member.address) return;
  channel_->disconnect(member.id);
  on_joined(member);
}

/// Only its connection is given up; a prefill worker that left the list may still be at work.
void DecodeWorker::on_left(const rpc::Member& member) {
  if (addresses_.erase(member.id) > 0) channel_->disconnect(member.id);
  mismatches_.erase(member.id);
}

void DecodeWorker::on_connected(rpc::ConnectionId connection, const rpc::Peer& peer) {
  if (!addresses_.contains(peer.name)) return;  // a router
  prefill_workers_[connection] = peer.name;
  greet(connection);
}

void DecodeWorker::greet(rpc::ConnectionId connection) {
  const std::string& worker = prefill_workers_.at(connection);
  for (const OneGroup& group : groups_) {
    if (group.handoffs->is_closing_link(worker)) return greet_again(connection);
  }
  const auto sent =
      channel_->call(connection, encode(WorkerCall(options_.self)), options_.handshake_max,
                     [this, connection](Result<std::string> answer) {
                       on_welcome(connection, std::move(answer));
                     });
  if (!sent.ok()) greet_again(connection);
}

void DecodeWorker::on_welcome(rpc::ConnectionId connection, Result<std::string> answer) {
  const auto worker = prefill_workers_.find(connection);
  if (worker == prefill_workers_.end()) return;
  auto welcome = answer.ok() ? decode_welcome(*answer, {}) : Result<Welcome>(answer.error());
  if (welcome.ok()) {
    const Result<void> valid = kv::validate(welcome->source.layout);
    if (!valid.ok()) welcome = valid.error();
  }
  if (!welcome.ok()) {
    note_mismatch(worker->second, welcome.error().what);
    return greet_again(connection);
  }
  if (mismatches_.erase(worker->second) > 0) {
    for (const rpc::ConnectionId router : routers_) tell_mismatch(router, worker->second, "");
  }
  const auto has_ended = options_.watch(welcome->process);
  for (size_t group = 0; group < groups_.size(); ++group) {
    groups_[group].handoffs->offer_link({worker->second, has_ended}, welcome->source,
                                        [this, connection, group](Result<LinkOffer> offer) {
                                          if (offer.ok()) {
                                            offer_link(connection, group, *offer);
                                          } else if (prefill_workers_.contains(connection)) {
                                            channel_->close(connection, offer.error());
                                          }
                                        });
  }
}

/// A prefill worker that differs now may be another one later, under the same name; one that did
/// not answer may answer then; a link that is being closed is closed then.
void DecodeWorker::greet_again(rpc::ConnectionId connection) {
  timers_.after(options_.handshake_again, [this, connection] {
    if (prefill_workers_.contains(connection)) greet(connection);
  });
}

void DecodeWorker::offer_link(rpc::ConnectionId connection, size_t group, const LinkOffer& offer) {
  const handoff::LinkId link = offer.link;
  DecodeGroup& handoffs = *groups_[group].handoffs;
  if (!prefill_workers_.contains(connection)) return handoffs.link_lost(link);
  links_[link] = {connection, group};
  const auto sent = channel_->call(connection, encode(WorkerCall(offer)), options_.handshake_max,
                                   [this, connection, link, &handoffs](Result<std::string> answer) {
                                     if (!links_.contains(link)) return;
                                     if (answer.ok()) {
                                       handoffs.link_up(link);
                                       return reporter_.report();
                                     }
                                     // Whether it has taken the offer is not known. The connection
                                     // begins anew.
                                     channel_->close(connection, answer.error());
                                   });
  if (!sent.ok()) channel_->close(connection, sent.error());
}

void DecodeWorker::send(const handoff::Message& message) {
  const auto link = links_.find(message.link);
  if (link == links_.end()) return;
  const auto bytes = handoff::encode(message, options_.limits);
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  // May be lost: the protocol repeats it.
  static_cast<void>(channel_->send(link->second.connection,
                                   encode(WorkerMessage(HandoffBytes{{text, bytes.size()}}))));
}

/// Dialled again at once, which makes other links.
void DecodeWorker::break_link(handoff::LinkId id) {
  const auto link = links_.find(id);
  if (link == links_.end()) return;
  channel_->close(
      link->second.connection,
      make_error(Code::kUnavailable,
                 options_.name + " has heard nothing for too long, or not what it asked"));
}

/// Messages of links that are lost are not heard: where those can be fenced, that alone says that
/// no write lands any more.
void DecodeWorker::take_handoff(rpc::ConnectionId connection, const HandoffBytes& carried) {
  const auto message = handoff::decode(std::as_bytes(std::span(carried.bytes)), options_.limits);
  if (!message.ok()) return channel_->close(connection, message.error());
  const auto link = links_.find(message->link);
  if (link == links_.end() || link->second.connection != connection) return;
  groups_[link->second.group].handoffs->on_message(*message);
}

void DecodeWorker::note_mismatch(const std::string& prefill_worker, const std::string& reason) {
  std::string& known = mismatches_[prefill_worker];
  if (known == reason) return;
  known = reason;
  for (const rpc::ConnectionId router : routers_) tell_mismatch(router, prefill_worker, reason);
}

void DecodeWorker::tell_mismatch(rpc::ConnectionId router, const std::string& prefill_worker,
                                 const std::string& reason) {
  static_cast<void>(
      channel_->send(router, encode(WorkerMessage(Mismatched{prefill_worker, reason}))));
}

}  // namespace tandem::cluster
