#include "cluster/handoff/prefiller.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::cluster::handoff {
namespace {

constexpr int64_t kNever = INT64_MAX;

Cause cause_of(const Error& error) {
  return {error.code, error.what};
}

}  // namespace

Prefiller::Prefiller(const Options& options, PrefillerPorts& ports)
    : options_(options), ports_(ports) {
  TANDEM_CHECK(options.source_ranks >= 1 && options.layers >= 1, "there is something to send");
}

void Prefiller::send(LinkedKey handoff, decltype(Message::body) body) {
  ports_.send({handoff.link, handoff.key, std::move(body)});
}

void Prefiller::on_message(const Message& message, int64_t now_us) {
  const auto link = links_.find(message.link.value);
  if (link == links_.end()) {
    ++counters_.unknown_links;
    const bool is_question =
        std::holds_alternative<Cancel>(message.body) || std::holds_alternative<Ask>(message.body);
    const LinkedKey asked{message.link, message.key};
    // Of a link that was lost, nothing can start any more.
    if (is_question && !entries_.contains(asked)) send(asked, Drained{});
    return;
  }
  link->second.heard_us = now_us;
  link->second.is_silent = false;
  const LinkedKey handoff{message.link, message.key};
  if (const auto* start = std::get_if<Start>(&message.body)) {
    on_start(handoff, *start, link->second, now_us);
  } else if (std::holds_alternative<Cancel>(message.body)) {
    on_cancel(handoff, link->second);
  } else if (std::holds_alternative<Ask>(message.body)) {
    on_ask(handoff, link->second, now_us);
  }
}

bool Prefiller::note_as_seen(LinkEntry& link, Key key) {
  uint64_t& seen = link.seen[key.slot];
  if (key.epoch <= seen) return false;
  seen = key.epoch;
  return true;
}

void Prefiller::on_start(LinkedKey handoff, const Start& start, LinkEntry& link, int64_t now_us) {
  if (const auto known = entries_.find(handoff); known != entries_.end()) {
    tell_state(known, now_us);
    return;
  }
  if (!note_as_seen(link, handoff.key)) {
    ++counters_.stale_starts;
    send(handoff, Drained{});
    return;
  }
  if (const auto begun = ports_.begin(handoff, start); !begun.ok()) {
    ++counters_.refused;
    send(handoff, Drained{cause_of(begun.error())});
    return;
  }
  ++counters_.begun;
  const auto entry = entries_.emplace(handoff, Entry{}).first;
  const uint32_t places = options_.source_ranks * options_.layers;
  entry->second.sent_end.assign(places, start.first_position);
  entry->second.tokens_end = static_cast<uint32_t>(start.tokens.size() - 1);
  entry->second.unfinished = places;
  const auto time_left_us = std::min<uint64_t>(start.time_left_us, kNever / 2);
  entry->second.deadline_us = now_us + static_cast<int64_t>(time_left_us);
  send(handoff, Accepted{});
}

void Prefiller::on_cancel(LinkedKey handoff, LinkEntry& link) {
  const auto entry = entries_.find(handoff);
  if (entry == entries_.end()) {
    note_as_seen(link, handoff.key);
    send(handoff, Drained{});
    return;
  }
  if (entry->second.state == State::kStopping) return;
  ++counters_.cancelled;
  stop(entry);
}

void Prefiller::on_ask(LinkedKey handoff, const LinkEntry& link, int64_t now_us) {
  if (const auto known = entries_.find(handoff); known != entries_.end()) {
    tell_state(known, now_us);
    return;
  }
  const auto seen = link.seen.find(handoff.key.slot);
  if (seen != link.seen.end() && handoff.key.epoch <= seen->second) send(handoff, Drained{});
}

void Prefiller::tell_state(Entries::iterator entry, int64_t now_us) {
  if (entry->second.state == State::kSending) send(entry->first, Accepted{});
  if (entry->second.state == State::kFailed) tell_failure(entry, now_us);
}

void Prefiller::on_computed(LinkedKey handoff, uint32_t rank, uint32_t layer, uint32_t tokens_end,
                            int64_t now_us) {
  TANDEM_CHECK(rank < options_.source_ranks && layer < options_.layers, "no such layer");
  const auto entry = entries_.find(handoff);
  if (entry == entries_.end()) return;
  submit_up_to(entry, rank, layer, tokens_end, now_us);
}

void Prefiller::submit_up_to(Entries::iterator found, uint32_t rank, uint32_t layer,
                             uint32_t tokens_end, int64_t now_us) {
  Entry& entry = found->second;
  const uint32_t end = std::min(tokens_end, entry.tokens_end);
  for (uint32_t each = 0; each <= layer; ++each) {
    uint32_t& sent = entry.sent_end[rank * options_.layers + each];
    if (entry.state != State::kSending || sent >= end) continue;
    const auto submitted = ports_.submit(found->first, {rank, each, sent, end});
    sent = end;
    if (end == entry.tokens_end) --entry.unfinished;
    entry.outstanding += submitted.writes;
    if (submitted.error) fail(found, cause_of(*submitted.error), now_us);
  }
  if (entry.state == State::kSending) settle(found);
}

void Prefiller::on_compute_failed(LinkedKey handoff, Error error, int64_t now_us) {
  const auto entry = entries_.find(handoff);
  if (entry != entries_.end()) fail(entry, cause_of(error), now_us);
}

void Prefiller::on_delivered(LinkedKey handoff, uint32_t writes) {
  const auto entry = entries_.find(handoff);
  TANDEM_CHECK(entry != entries_.end() && entry->second.outstanding >= writes,
               "nothing is delivered that was not submitted");
  entry->second.outstanding -= writes;
  settle(entry);
}

void Prefiller::on_write_failed(LinkedKey handoff, uint32_t writes, Error error, int64_t now_us) {
  const auto entry = entries_.find(handoff);
  TANDEM_CHECK(entry != entries_.end() && entry->second.outstanding >= writes,
               "nothing fails that was not submitted");
  entry->second.outstanding -= writes;
  const bool is_news = entry->second.state == State::kSending;
  if (is_news) fail(entry, cause_of(error), now_us);
  if (!is_news) settle(entry);
}

void Prefiller::fail(Entries::iterator entry, Cause cause, int64_t now_us) {
  if (entry->second.state != State::kSending) return;
  ++counters_.failed;
  entry->second.state = State::kFailed;
  entry->second.cause = std::move(cause);
  ports_.stop(entry->first);
  if (entry->second.outstanding == 0) release(entry);
  tell_failure(entry, now_us);
}

void Prefiller::tell_failure(Entries::iterator entry, int64_t now_us) {
  entry->second.resend_at_us = now_us + options_.resend_us;
  const Cause& cause = *entry->second.cause;
  if (entry->second.outstanding == 0) {
    send(entry->first, Drained{cause});
  } else {
    send(entry->first, Failed{cause});
  }
}

void Prefiller::stop(Entries::iterator entry) {
  if (entry->second.state == State::kSending) ports_.stop(entry->first);
  entry->second.state = State::kStopping;
  settle(entry);
}

void Prefiller::settle(Entries::iterator found) {
  Entry& entry = found->second;
  if (entry.outstanding > 0) return;
  if (entry.state == State::kSending && entry.unfinished > 0) return;
  release(found);
  if (entry.state == State::kFailed) {
    entry.resend_at_us = 0;  // told by the timer, and again until it is answered
    return;
  }
  counters_.completed += entry.state == State::kSending;
  send(found->first, Drained{});
  entries_.erase(found);
}

void Prefiller::release(Entries::iterator entry) {
  if (entry->second.is_released) return;
  entry->second.is_released = true;
  ports_.release(entry->first);
}

void Prefiller::on_link_up(LinkId link, int64_t now_us) {
  const bool is_new =
      links_.emplace(link.value, LinkEntry{.heard_us = now_us, .heartbeat_at_us = now_us}).second;
  TANDEM_CHECK(is_new, "a link comes up once");
}

void Prefiller::on_link_lost(LinkId link) {
  abandon_all_of(link);
  links_.erase(link.value);
}

void Prefiller::abandon_all_of(LinkId link) {
  std::vector<LinkedKey> handoffs;
  for (const auto& [handoff, entry] : entries_) {
    if (handoff.link == link && entry.state != State::kStopping) handoffs.push_back(handoff);
  }
  for (const LinkedKey& handoff : handoffs) stop(entries_.find(handoff));
}

void Prefiller::on_timer(int64_t now_us) {
  for (auto& [id, link] : links_) {
    if (!link.is_silent && now_us - link.heard_us >= options_.silence_us) {
      link.is_silent = true;
      abandon_all_of(LinkId{id});
    }
    if (now_us >= link.heartbeat_at_us) {
      link.heartbeat_at_us = now_us + options_.heartbeat_us;
      send({LinkId{id}, Key{}}, Heartbeat{});
    }
  }
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->second.state == State::kSending && now_us >= entry->second.deadline_us) {
      ++counters_.expired;
      fail(entry, {Code::kDeadlineExceeded, "the decoder's time is over"}, now_us);
    } else if (entry->second.state == State::kFailed && now_us >= entry->second.resend_at_us) {
      tell_failure(entry, now_us);
    }
  }
}

std::optional<int64_t> Prefiller::next_timer_us() const {
  int64_t next = kNever;
  for (const auto& [id, link] : links_) {
    next = std::min(next, link.heartbeat_at_us);
    if (!link.is_silent) next = std::min(next, link.heard_us + options_.silence_us);
  }
  for (const auto& [handoff, entry] : entries_) {
    if (entry.state == State::kSending) next = std::min(next, entry.deadline_us);
    if (entry.state == State::kFailed) next = std::min(next, entry.resend_at_us);
  }
  return next == kNever ? std::nullopt : std::optional(next);
}

}  // namespace tandem::cluster::handoff
