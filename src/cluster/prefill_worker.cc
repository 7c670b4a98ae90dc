#include "cluster/prefill_worker.h"

#include <span>
#include <utility>

namespace tandem::cluster {

PrefillWorker::PrefillWorker(Options options, PrefillGroup::Engine engine,
                             std::vector<DataRank> ranks, io::Executor& executor)
    : options_(std::move(options)),
      engine_(*engine.client),
      group_(
          options_.protocol, engine, options_.self.layout, std::move(ranks), executor,
          [this](const handoff::Message& message) { send(message); },
          [this](handoff::LinkId link, const Error& error) {
            const auto found = links_.find(link);
            if (found != links_.end()) channel_->close(found->second, error);
          }),
      reporter_(executor, options_.report_every, [this] {
        return Report{.queued_tokens = group_.queued_tokens(),
                      .page_tokens = options_.self.layout.page_tokens,
                      .model_length_max = options_.self.model_length_max,
                      .draining = is_draining_,
                      .groups = {engine_.status()}};
      }) {}

void PrefillWorker::start(rpc::Channel& channel) {
  channel_ = &channel;
  reporter_.start(channel);
}

void PrefillWorker::drain() {
  is_draining_ = true;
  reporter_.report();
}

void PrefillWorker::on_connected(rpc::ConnectionId, const rpc::Peer&) {}

void PrefillWorker::on_message(rpc::ConnectionId connection, std::string bytes) {
  auto message = decode_message(bytes, {});
  if (!message.ok()) return channel_->close(connection, message.error());
  if (std::holds_alternative<Subscribe>(*message)) return reporter_.subscribe(connection);
  const auto* carried = std::get_if<HandoffBytes>(&*message);
  if (carried == nullptr) {
    return channel_->close(connection, make_error(Code::kInvalidArgument,
                                                  "a prefill worker takes no requests; is this the "
                                                  "address of a decode worker?"));
  }
  const auto handoff = handoff::decode(std::as_bytes(std::span(carried->bytes)), options_.limits);
  if (!handoff.ok()) return channel_->close(connection, handoff.error());
  const auto link = links_.find(handoff->link);
  if (link != links_.end() && link->second != connection) return;  // somebody else's
  asking_ = connection;
  group_.on_message(*handoff);
  asking_ = {};
}

void PrefillWorker::send(const handoff::Message& message) {
  const auto link = links_.find(message.link);
  const rpc::ConnectionId connection = link == links_.end() ? asking_ : link->second;
  if (connection == rpc::ConnectionId{}) return;
  const auto bytes = handoff::encode(message, options_.limits);
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  // May be lost: the protocol repeats it.
  static_cast<void>(
      channel_->send(connection, encode(WorkerMessage(HandoffBytes{{text, bytes.size()}}))));
}

// The handshake.

void PrefillWorker::on_call(rpc::ConnectionId connection, rpc::CallId call, std::string request) {
  auto decoded = decode_call(request, {});
  if (!decoded.ok()) return channel_->reply(connection, call, decoded.error());
  if (const auto* hello = std::get_if<Hello>(&*decoded)) {
    welcome(connection, call, *hello);
  } else {
    take_offer(connection, call, std::get<LinkOffer>(*std::move(decoded)));
  }
}

void PrefillWorker::welcome(rpc::ConnectionId connection, rpc::CallId call, const Hello& hello) {
  const Result<void> match = check_match(hello, options_.self);
  if (!match.ok()) return channel_->reply(connection, call, match.error());
  channel_->reply(connection, call,
                  encode(Welcome{.source = group_.source(),
                                 .generation = options_.generation,
                                 .process = options_.process}));
}

void PrefillWorker::take_offer(rpc::ConnectionId connection, rpc::CallId call, LinkOffer offer) {
  const Result<void> valid = kv::validate(offer.layout);
  if (!valid.ok()) return channel_->reply(connection, call, valid.error());
  const Result<void> match = kv::check_match(group_.source().layout, offer.layout);
  if (!match.ok()) return channel_->reply(connection, call, match.error());
  const handoff::LinkId link = offer.link;
  if (links_.contains(link)) {
    return channel_->reply(connection, call,
                           make_error(Code::kInvalidArgument, "a link is offered once"));
  }
  links_[link] = connection;
  group_.open_link(std::move(offer), [this, connection, call, link](Result<void> opened) {
    if (!opened.ok()) links_.erase(link);
    channel_->reply(connection, call,
                    opened.ok() ? Result<std::string>(std::string()) : opened.error());
  });
}

void PrefillWorker::on_closed(rpc::ConnectionId connection, const rpc::Peer&, const Error&) {
  reporter_.closed(connection);
  std::vector<handoff::LinkId> lost;
  for (const auto& [link, of] : links_) {
    if (of == connection) lost.push_back(link);
  }
  for (const handoff::LinkId link : lost) {
    links_.erase(link);
    group_.link_lost(link);
  }
}

}  // namespace tandem::cluster
