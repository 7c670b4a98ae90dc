#include "cluster/handoff/decoder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem::cluster::handoff {
namespace {

constexpr int64_t kNever = INT64_MAX;

bool all(const std::vector<bool>& flags) {
  return std::ranges::all_of(flags, [](bool flag) { return flag; });
}

uint32_t pages_of(const auto& entry) {
  return static_cast<uint32_t>(entry.handoff.start.pages.size());
}

const char* name_of(Policy policy) {
  return policy == Policy::kRecompute ? "recompute" : policy == Policy::kRetry ? "retry" : "fail";
}

}  // namespace

Decoder::Decoder(const Options& options, DecoderPorts& ports)
    : options_(options), ports_(ports), slots_(options.slots) {}

Result<std::optional<Key>> Decoder::start(Handoff handoff, int64_t now_us) {
  TANDEM_CHECK(!active_.contains(handoff.request.value), "a request has one hand-off at a time");
  const size_t prompt_tokens = handoff.start.tokens.size();
  TANDEM_CHECK(handoff.start.first_position < prompt_tokens, "the last token is never a hit");
  if (handoff.start.first_position + 1 == prompt_tokens) {
    ports_.admit(handoff.request, Key{});
    return std::optional<Key>();
  }
  TANDEM_CHECK(!handoff.start.pages.empty() && !handoff.start.writes.empty(), "nothing to fill");
  if (!is_up(handoff.link)) {
    return make_error(Code::kUnavailable, "the prefill worker's link is not up; choose another");
  }
  const uint64_t pages = handoff.start.pages.size();
  if (quarantined_pages_ + pages > options_.quarantined_pages_max) {
    return make_error(Code::kResourceExhausted,
                      std::to_string(quarantined_pages_) +
                          " pages may still be written by prefill workers that do not answer; "
                          "no hand-off starts until they do or are gone");
  }
  const auto key = slots_.take(now_us);
  if (!key) {
    return make_error(Code::kResourceExhausted, "every slot of the decoder counts writes or rests");
  }
  const size_t ranks = handoff.start.writes.size();
  Entry& entry = entries_[*key];
  entry.peer = links_.at(handoff.link.value).link.name;
  entry.handoff = std::move(handoff);
  entry.arrived.resize(ranks);
  entry.proved.resize(ranks);
  entry.expires_at_us = entry.handoff.deadline_us;
  active_[entry.handoff.request.value] = *key;
  ++counters_.started;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    ports_.arm(immediate_of(*key), rank, entry.handoff.start.writes[rank]);
  }
  send_start(entry, *key, now_us);
  return key;
}

void Decoder::cancel(RequestId request, int64_t now_us) {
  const auto active = active_.find(request.value);
  if (active == active_.end()) return;
  ++counters_.cancelled;
  const Key key = active->second;
  close(key, entries_.at(key), false, now_us);
  release_if_drained(key);
}

void Decoder::send(const Entry& entry, Key key, decltype(Message::body) body) {
  ports_.send({entry.handoff.link, key, std::move(body)});
}

void Decoder::send_start(Entry& entry, Key key, int64_t now_us) {
  Start& start = entry.handoff.start;
  start.time_left_us =
      static_cast<uint64_t>(std::max<int64_t>(0, entry.handoff.deadline_us - now_us));
  send(entry, key, start);
  entry.resend_at_us = now_us + options_.resend_us;
}

void Decoder::on_message(const Message& message, int64_t now_us) {
  const auto link = links_.find(message.link.value);
  if (link == links_.end()) {
    ++counters_.unknown_links;
    return;
  }
  link->second.heard_us = now_us;
  const bool is_question = std::holds_alternative<Start>(message.body) ||
                           std::holds_alternative<Cancel>(message.body) ||
                           std::holds_alternative<Ask>(message.body);
  if (is_question || std::holds_alternative<Heartbeat>(message.body)) return;
  const auto found = entries_.find(message.key);
  if (found == entries_.end() || found->second.handoff.link != message.link) {
    ++counters_.unknown_handoffs;
    const auto* drained = std::get_if<Drained>(&message.body);
    const bool is_kept_there = drained == nullptr || drained->cause.has_value();
    if (is_kept_there) ports_.send({message.link, message.key, Cancel{}});
    return;
  }
  Entry& entry = found->second;
  if (const auto* drained = std::get_if<Drained>(&message.body)) {
    on_drained(message.key, entry, *drained, now_us);
  } else if (const auto* failed = std::get_if<Failed>(&message.body)) {
    if (!is_waiting(entry)) return;
    fail(message.key, entry, failed->cause.code, failed->cause.text, now_us);
  } else if (std::holds_alternative<Accepted>(message.body) && entry.state == State::kAsked) {
    entry.state = State::kAccepted;
    entry.resend_at_us = now_us + options_.ask_us;
  }
}

void Decoder::on_drained(Key key, Entry& entry, const Drained& drained, int64_t now_us) {
  const bool is_news = !entry.is_drained;
  entry.is_drained = true;
  if (entry.state == State::kClosing) {
    release(entries_.find(key));
  } else if (is_waiting(entry) && drained.cause) {
    send(entry, key, Cancel{});  // the prefiller keeps the cause until it knows that it is heard
    fail(key, entry, drained.cause->code, drained.cause->text, now_us);
  } else if (is_waiting(entry) && is_news) {
    entry.state = State::kAccepted;
    entry.resend_at_us = kNever;
    entry.expires_at_us = std::min(entry.expires_at_us, now_us + options_.arrival_us);
  }
}

void Decoder::on_arrived(Immediate immediate, uint32_t rank) {
  const auto slot = static_cast<uint16_t>(immediate.value >> 16);
  // Of a slot's hand-offs only the last may be counting.
  auto found = entries_.lower_bound(Key{slot, UINT64_MAX});
  if (found == entries_.begin() || (--found)->first.slot != slot ||
      immediate_of(found->first) != immediate || !is_waiting(found->second)) {
    ++counters_.unknown_handoffs;
    return;
  }
  Entry& entry = found->second;
  TANDEM_CHECK(rank < entry.arrived.size(), "a rank counts what was armed");
  entry.arrived[rank] = true;
  if (!all(entry.arrived)) return;
  entry.state = State::kVerifying;
  ports_.verify(found->first);
}

void Decoder::on_verdict(Key key, uint32_t rank, Result<void> verdict, int64_t now_us) {
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second.state != State::kVerifying) return;
  Entry& entry = found->second;
  if (!verdict.ok()) {
    ++counters_.not_proved;
    fail(key, entry, verdict.error().code, verdict.error().what, now_us);
    return;
  }
  TANDEM_CHECK(rank < entry.proved.size(), "a rank proves what it counted");
  entry.proved[rank] = true;
  if (!all(entry.proved)) return;
  ++counters_.admitted;
  ports_.admit(entry.handoff.request, key);
  close(key, entry, true, now_us);
  release_if_drained(key);
}

void Decoder::fail(Key key, Entry& entry, Code code, const std::string& why, int64_t now_us) {
  const char* phase = entry.state == State::kVerifying  ? "its proof"
                      : entry.state == State::kAccepted ? "its transfer"
                                                        : "its start";
  const RequestId request = entry.handoff.request;
  const uint32_t attempt = entry.handoff.attempt + 1;
  const auto complete = std::ranges::count(entry.arrived, true);
  const size_t ranks = entry.arrived.size();
  Policy next = options_.policy;
  if (next == Policy::kRetry && attempt >= options_.attempts_max) next = Policy::kFail;
  ++counters_.failed;
  const std::string what = "hand-off from prefill worker " + entry.peer + " failed in " + phase +
                           " with " + std::to_string(complete) + " of " + std::to_string(ranks) +
                           " ranks complete (attempt " + std::to_string(attempt) +
                           ", next: " + name_of(next) + "): " + why;
  close(key, entry, false, now_us);
  ports_.fail(request, make_error(code, what), next);
  release_if_drained(key);
}

void Decoder::close(Key key, Entry& entry, bool is_admitted, int64_t now_us) {
  for (uint32_t rank = 0; rank < entry.handoff.start.writes.size(); ++rank) {
    ports_.drop(immediate_of(key), rank);
  }
  slots_.give_back(key, now_us);
  active_.erase(entry.handoff.request.value);
  entry.state = State::kClosing;
  if (entry.is_drained) return;
  entry.resend_at_us = now_us + options_.resend_us;
  entry.expires_at_us = now_us + options_.confirm_us;
  if (!is_admitted) {
    entry.is_quarantined = true;
    quarantined_pages_ += pages_of(entry);
    send(entry, key, Cancel{});
  }
}

/// Once the engine knows what has become of the request: whoever gets the pages next gets them of
/// it.
void Decoder::release_if_drained(Key key) {
  const auto entry = entries_.find(key);
  if (entry->second.is_drained) release(entry);
}

void Decoder::release(Entries::iterator entry) {
  const Key key = entry->first;
  if (entry->second.is_quarantined) quarantined_pages_ -= pages_of(entry->second);
  entries_.erase(entry);
  slots_.settle(key);
  ports_.release(key);
}

std::vector<Key> Decoder::keys_of(LinkId link) const {
  std::vector<Key> keys;
  for (const auto& [key, entry] : entries_) {
    if (entry.handoff.link == link) keys.push_back(key);
  }
  return keys;
}

void Decoder::release_all_of(LinkId link) {
  for (const Key key : keys_of(link)) {
    const auto entry = entries_.find(key);
    entry->second.is_drained = true;
    if (entry->second.state == State::kClosing) release(entry);
  }
  links_.erase(link.value);
}

void Decoder::lose(LinkId id, const std::string& why, int64_t now_us) {
  const auto link = links_.find(id.value);
  if (link == links_.end() || !link->second.is_up) return;
  link->second.is_up = false;
  for (const Key key : keys_of(id)) {
    Entry& entry = entries_.at(key);
    if (is_waiting(entry)) fail(key, entry, Code::kUnavailable, why, now_us);
  }
  if (!link->second.link.can_fence) return;
  ++counters_.fences;
  ports_.fence(id);
}

void Decoder::on_link_up(LinkId id, Link link, int64_t now_us) {
  const bool is_new =
      links_.emplace(id.value, LinkEntry{std::move(link), true, now_us, now_us}).second;
  TANDEM_CHECK(is_new, "a link comes up once");
}

void Decoder::on_link_lost(LinkId link, int64_t now_us) {
  lose(link, "the connection is lost", now_us);
}

void Decoder::on_process_gone(LinkId id, int64_t now_us) {
  lose(id, "its process is gone", now_us);
  const auto link = links_.find(id.value);
  if (link != links_.end() && !link->second.link.can_fence) release_all_of(id);
}

void Decoder::on_fenced(LinkId link, int64_t now_us) {
  lose(link, "it was fenced", now_us);
  release_all_of(link);
}

bool Decoder::is_up(LinkId id) const {
  const auto link = links_.find(id.value);
  return link != links_.end() && link->second.is_up;
}

void Decoder::on_timer(int64_t now_us) {
  std::vector<LinkId> silent;
  for (auto& [id, link] : links_) {
    if (!link.is_up) continue;
    if (now_us - link.heard_us >= options_.silence_us) {
      silent.push_back(LinkId{id});
    } else if (now_us >= link.heartbeat_at_us) {
      link.heartbeat_at_us = now_us + options_.heartbeat_us;
      ports_.send({LinkId{id}, Key{}, Heartbeat{}});
    }
  }
  for (const LinkId link : silent) lose(link, "nothing is heard from it", now_us);
  std::vector<Key> keys;
  for (const auto& [key, entry] : entries_) keys.push_back(key);
  for (const Key key : keys) on_entry_timer(key, now_us);
}

void Decoder::on_entry_timer(Key key, int64_t now_us) {
  const auto found = entries_.find(key);  // a link that was lost may have ended it
  if (found == entries_.end() || found->second.state == State::kVerifying) return;
  Entry& entry = found->second;
  const bool is_late = now_us >= entry.expires_at_us;
  const bool is_unanswered = now_us >= entry.resend_at_us;
  if (entry.state == State::kClosing) {
    if (is_late) {
      entry.expires_at_us = kNever;
      lose(entry.handoff.link, "it does not confirm the end of a hand-off", now_us);
    }
    if (is_unanswered) {
      entry.resend_at_us = now_us + options_.resend_us;
      send(entry, key, Cancel{});
    }
  } else if (is_late && entry.is_drained) {
    fail(key, entry, Code::kDataLoss, "it delivered everything, and writes are missing", now_us);
  } else if (is_late) {
    fail(key, entry, Code::kDeadlineExceeded, "time is over", now_us);
  } else if (is_unanswered && entry.state == State::kAsked) {
    send_start(entry, key, now_us);
  } else if (is_unanswered) {
    entry.resend_at_us = now_us + options_.ask_us;
    send(entry, key, Ask{});
  }
}

std::optional<int64_t> Decoder::next_timer_us() const {
  int64_t next = kNever;
  for (const auto& [id, link] : links_) {
    if (!link.is_up) continue;
    next = std::min({next, link.heartbeat_at_us, link.heard_us + options_.silence_us});
  }
  for (const auto& [key, entry] : entries_) {
    if (entry.state == State::kVerifying) continue;
    next = std::min({next, entry.expires_at_us, entry.resend_at_us});
  }
  return next == kNever ? std::nullopt : std::optional(next);
}

}  // namespace tandem::cluster::handoff
