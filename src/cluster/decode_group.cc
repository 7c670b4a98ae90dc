#include "cluster/decode_group.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tandem::cluster {
namespace {

engine::AfterFailure after(handoff::Policy policy) {
  switch (policy) {
    case handoff::Policy::kRecompute:
      return engine::AfterFailure::kRecompute;
    case handoff::Policy::kRetry:
      return engine::AfterFailure::kRetry;
    case handoff::Policy::kFail:
      break;
  }
  return engine::AfterFailure::kEnd;
}

/// Between two looks whether a process has ended.
constexpr auto kEndLooks = std::chrono::milliseconds(50);

uint64_t records_of(const kv::TransferPlan& plan, uint32_t ranks) {
  const kv::SidecarMap map(plan);
  uint64_t most = 0;
  for (uint32_t rank = 0; rank < ranks; ++rank) most = std::max(most, map.records_count(rank));
  return most;
}

}  // namespace

DecodeGroup::DecodeGroup(Options options, engine::KvImport& import, kv::KvLayout layout,
                         std::vector<DataRank> ranks, io::Executor& executor, Send send,
                         Break break_link)
    : options_(std::move(options)),
      import_(import),
      timers_(executor),
      send_message_(std::move(send)),
      break_link_(std::move(break_link)),
      protocol_(options_.protocol, *this),
      sidecars_(ranks.front().sidecars.size()),
      receiver_(std::move(layout), std::move(ranks), executor, *this),
      link_ids_(options_.link_seed) {}

int64_t DecodeGroup::now_us() const {
  return std::chrono::duration_cast<std::chrono::microseconds>(timers_.now().time_since_epoch())
      .count();
}

/// After everything that may have changed when the protocol wants to be called.
void DecodeGroup::rearm() {
  break_links();
  start_waiting();
  if (timer_) timers_.cancel(*timer_);
  timer_.reset();
  const auto next = protocol_.next_timer_us();
  if (!next) return;
  timer_ = timers_.at(io::Time(std::chrono::microseconds(*next)), [this] {
    timer_.reset();
    protocol_.on_timer(now_us());
    rearm();
  });
}

// Links.

void DecodeGroup::break_links() {
  std::vector<handoff::LinkId> broken;
  for (auto& [id, link] : links_) {
    if (link.state != LinkState::kUp || protocol_.is_up(id)) continue;
    link.state = LinkState::kLost;
    broken.push_back(id);
  }
  for (const handoff::LinkId id : broken) break_link_(id);
}

void DecodeGroup::offer_link(Peer peer, LinkSource source,
                             std::function<void(Result<LinkOffer>)> done) {
  const handoff::LinkId link{link_ids_()};
  std::string name = peer.prefill_worker;
  links_[link] = {.peer = std::move(peer), .layout = source.layout};
  receiver_.open_link(link, std::move(name), source,
                      [this, link, done = std::move(done)](Result<LinkOffer> offer) {
                        if (offer.ok()) {
                          offer->name = options_.name;
                        } else {
                          links_.erase(link);
                        }
                        done(std::move(offer));
                      });
}

void DecodeGroup::link_up(handoff::LinkId id) {
  const auto link = links_.find(id);
  if (link == links_.end()) return;
  link->second.state = LinkState::kUp;
  protocol_.on_link_up(
      id, {.name = link->second.peer.prefill_worker, .can_fence = receiver_.can_fence()}, now_us());
  rearm();
}

void DecodeGroup::link_lost(handoff::LinkId id) {
  const auto link = links_.find(id);
  if (link == links_.end()) return;
  if (link->second.state == LinkState::kOffered) {
    receiver_.forget(id);
    links_.erase(link);
  } else {
    // What the protocol has lost itself is being fenced.
    link->second.state = LinkState::kLost;
    protocol_.on_link_lost(id, now_us());
    watch_end(id);
    rearm();
  }
}

/// Where nothing is fenced, a lost peer's writes end with its process.
void DecodeGroup::watch_end(handoff::LinkId id) {
  const auto link = links_.find(id);
  if (receiver_.can_fence() || link == links_.end() || !link->second.peer.has_ended) return;
  if (!link->second.peer.has_ended()) {
    timers_.after(kEndLooks, [this, id] { watch_end(id); });
    return;
  }
  receiver_.forget(id);
  links_.erase(link);
  protocol_.on_process_gone(id, now_us());
  rearm();
}

bool DecodeGroup::is_closing_link(const std::string& prefill_worker) const {
  return receiver_.can_fence() && std::ranges::any_of(links_, [&](const auto& item) {
           return item.second.peer.prefill_worker == prefill_worker;
         });
}

bool DecodeGroup::has_link() const {
  return std::ranges::any_of(links_,
                             [this](const auto& item) { return protocol_.is_up(item.first); });
}

void DecodeGroup::on_message(const handoff::Message& message) {
  protocol_.on_message(message, now_us());
  rearm();
}

void DecodeGroup::fence(handoff::LinkId link) {
  receiver_.fence(link);
}

void DecodeGroup::on_fenced(handoff::LinkId link) {
  protocol_.on_fenced(link, now_us());
  links_.erase(link);
  rearm();
}

// Requests.

void DecodeGroup::expect(RequestId request, Wish wish) {
  requests_[request.value] = {.wish = std::move(wish)};
}

void DecodeGroup::forget(RequestId request) {
  requests_.erase(request.value);
}

void DecodeGroup::on_reserved(Reservation reservation) {
  const engine::ImportId import = reservation.import;
  imports_[reservation.request] = import;
  waiting_.push_back(std::move(reservation));
  rearm();
  if (waiting_.empty() || waiting_.back().import != import) return;
  timers_.after(std::chrono::microseconds(options_.deadline_us), [this, import] {
    expire(import);
    rearm();
  });
}

/// In turn, so that a long one is not overtaken for ever. All sidecars together are enough for the
/// pages that there are, but free ones may lie in gaps that are too short for this one.
void DecodeGroup::start_waiting() {
  while (!waiting_.empty()) {
    const auto started = start(waiting_.front());
    if (started.ok() && !*started) return;
    const Reservation reservation = std::move(waiting_.front());
    waiting_.pop_front();
    if (!started.ok()) refuse(reservation, started.error());
  }
}

void DecodeGroup::expire(engine::ImportId import) {
  const auto found = std::ranges::find(waiting_, import, &Reservation::import);
  if (found == waiting_.end()) return;
  const Reservation reservation = std::move(*found);
  waiting_.erase(found);
  refuse(reservation, make_error(Code::kDeadlineExceeded,
                                 options_.name + " had no room for the proofs of a hand-off until "
                                                 "its time was over; send the request again"));
}

/// Nothing was sent, so nothing can land.
void DecodeGroup::refuse(const Reservation& reservation, const Error& error) {
  imports_.erase(reservation.request);
  Request& request = requests_[reservation.request.value];
  handoff::Policy next = options_.protocol.policy;
  if (next == handoff::Policy::kRetry && ++request.attempts >= options_.protocol.attempts_max) {
    next = handoff::Policy::kFail;
  }
  import_.failed(reservation.import, error, after(next));
  import_.drained(reservation.import);
}

/// False: no gap among the sidecars is long enough now.
Result<bool> DecodeGroup::start(const Reservation& reservation) {
  const Request& request = requests_[reservation.request.value];
  const auto id = choose_link(request);
  if (!id) {
    return make_error(
        Code::kUnavailable,
        options_.name + " has no link to a prefill worker now; send the request again");
  }
  auto plan = TANDEM_TRY(kv::TransferPlan::create(
      links_.at(*id).layout, receiver_.layout(),
      {.tokens = reservation.range, .spread = static_cast<uint32_t>(reservation.range.end)}));
  const uint32_t ranks = receiver_.layout().ranks_count();
  const auto sidecar_first = sidecars_.take(records_of(plan, ranks));
  if (!sidecar_first) return false;
  handoff::Start start{.tokens = reservation.tokens,
                       .first_position = reservation.range.first,
                       .pages = reservation.pages,
                       .writes = {},
                       .sidecar_first = *sidecar_first,
                       .cache_salt = request.wish.cache_salt};
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    start.writes.push_back(static_cast<uint32_t>(plan.arrivals(rank).total()));
  }
  starting_ = Delivery{.link = *id,
                       .import = reservation.import,
                       .request = reservation.request,
                       .plan = std::make_shared<const kv::TransferPlan>(std::move(plan)),
                       .pages = reservation.pages,
                       .sidecar_first = *sidecar_first,
                       .waiting_start = {}};
  const auto key = protocol_.start({.request = reservation.request,
                                    .link = *id,
                                    .attempt = request.attempts,
                                    .deadline_us = now_us() + options_.deadline_us,
                                    .start = std::move(start)},
                                   now_us());
  if (key.ok()) return true;
  starting_.reset();
  sidecars_.give_back(*sidecar_first);
  return key.error();
}

/// The wished one if it is up and has not failed yet; else any, another one with each attempt.
std::optional<handoff::LinkId> DecodeGroup::choose_link(const Request& request) const {
  std::vector<handoff::LinkId> up;
  for (const auto& [id, link] : links_) {
    if (!protocol_.is_up(id)) continue;
    if (link.peer.prefill_worker == request.wish.prefill_worker && request.attempts == 0) return id;
    up.push_back(id);
  }
  if (up.empty()) return std::nullopt;
  return up[request.attempts % up.size()];
}

void DecodeGroup::on_abandoned(engine::ImportId import) {
  const auto found =
      std::ranges::find_if(imports_, [import](const auto& item) { return item.second == import; });
  if (found == imports_.end()) return;
  const RequestId request = found->first;
  imports_.erase(found);
  if (std::erase_if(waiting_, [&](const auto& each) { return each.import == import; }) > 0) {
    import_.drained(import);
  } else {
    protocol_.cancel(request, now_us());
  }
  rearm();
}

// What the protocol does.

/// Its writer must not hear of a hand-off before its count is armed, or early writes would be lost.
void DecodeGroup::send(const handoff::Message& message) {
  if (starting_ && std::holds_alternative<handoff::Start>(message.body)) {
    deliveries_[message.key] = *std::exchange(starting_, std::nullopt);
  }
  const auto delivery = deliveries_.find(message.key);
  const bool is_too_early = delivery != deliveries_.end() && delivery->second.unarmed_ranks > 0 &&
                            std::holds_alternative<handoff::Start>(message.body);
  if (is_too_early) {
    delivery->second.waiting_start = message;
  } else {
    send_message_(message);
  }
}

void DecodeGroup::arm(handoff::Immediate immediate, uint32_t rank, uint32_t writes) {
  ++starting_->unarmed_ranks;
  receiver_.arm(immediate, rank, writes, [this, immediate](const Result<void>& armed) {
    on_armed(immediate, armed);
    rearm();
  });
}

void DecodeGroup::on_armed(handoff::Immediate immediate, const Result<void>& armed) {
  // Of the hand-offs with this immediate only the latest can still be arming.
  const auto found = std::ranges::find_if(deliveries_, [immediate](const auto& item) {
    return handoff::immediate_of(item.first) == immediate && item.second.unarmed_ranks > 0;
  });
  if (found == deliveries_.end()) return;
  auto& [key, delivery] = *found;
  if (!armed.ok()) {
    // As if the prefill worker had refused it: it has not heard of it.
    delivery.waiting_start.reset();
    const handoff::Cause cause{armed.error().code, armed.error().what};
    return protocol_.on_message({delivery.link, key, handoff::Drained{cause}}, now_us());
  }
  if (--delivery.unarmed_ranks > 0 || !delivery.waiting_start) return;
  send_message_(*std::exchange(delivery.waiting_start, std::nullopt));
}

void DecodeGroup::drop(handoff::Immediate immediate, uint32_t rank) {
  receiver_.drop(immediate, rank);
}

void DecodeGroup::verify(handoff::Key key) {
  Delivery& delivery = deliveries_.at(key);
  delivery.unproved_ranks = receiver_.layout().ranks_count();
  receiver_.verify({.key = key,
                    .plan = delivery.plan,
                    .pages = delivery.pages,
                    .sidecar_first = delivery.sidecar_first});
}

void DecodeGroup::admit(RequestId request, handoff::Key key) {
  imports_.erase(request);
  import_.arrived(deliveries_.at(key).import);
}

void DecodeGroup::fail(RequestId request, Error error, handoff::Policy next) {
  ++requests_[request.value].attempts;
  const auto import = imports_.find(request);
  TANDEM_CHECK(import != imports_.end(), "the engine waits for what fails");
  import_.failed(import->second, std::move(error), after(next));
  imports_.erase(import);
}

void DecodeGroup::release(handoff::Key key) {
  deliveries_.at(key).is_released = true;
  end_if_released(key);
}

/// A proof reads the pages, so they are kept for it.
void DecodeGroup::end_if_released(handoff::Key key) {
  const auto delivery = deliveries_.find(key);
  if (delivery == deliveries_.end()) return;  // the verdict led to its release
  if (!delivery->second.is_released || delivery->second.unproved_ranks > 0) return;
  sidecars_.give_back(delivery->second.sidecar_first);
  import_.drained(delivery->second.import);
  deliveries_.erase(delivery);
}

// What the data plane finds.

void DecodeGroup::on_arrived(handoff::Immediate immediate, uint32_t rank) {
  protocol_.on_arrived(immediate, rank);
  rearm();
}

void DecodeGroup::on_verdict(handoff::Key key, uint32_t rank, Result<void> verdict) {
  --deliveries_.at(key).unproved_ranks;
  protocol_.on_verdict(key, rank, std::move(verdict), now_us());
  end_if_released(key);
  rearm();
}

}  // namespace tandem::cluster
