#include "transfer/engine/fencing.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tandem::transfer {
namespace {

constexpr size_t kServedMax = 1024;  // a peer beyond it asks again

}  // namespace

Fencing::Fencing(EngineShared& shared, const Parts& parts, EngineAddress own_address)
    : shared_(shared), parts_(parts), own_address_(std::move(own_address)) {}

Fencing::Asked Fencing::make_asked(PeerId peer) const {
  return {
      .peer = peer, .deadline = shared_.now + shared_.options.fence_max, .retry_at = shared_.now};
}

void Fencing::ask_count(const CountQuestion& question) {
  Asked asked = make_asked(question.peer);
  asked.transfer = question.transfer;
  const FenceRequest request{.id = ++requests_made_,
                             .rail = question.rail,
                             .keys = {question.key},
                             .immediate = question.immediate,
                             .reply_to = own_address_};
  asked.open_requests[request.id] = encode(EngineMessage(request));
  asked_.push_back(std::move(asked));
}

void Fencing::start(Path& path, const std::vector<uint64_t>& keys) {
  Asked asked = make_asked(path.peer->id);
  asked.path = &path;
  FenceRequest request{.rail = path.rail, .reply_to = own_address_};
  const size_t empty_bytes = encode(EngineMessage(request)).size();
  const size_t message_bytes = kMessageBytesMin - std::min<size_t>(empty_bytes, kMessageBytesMin);
  const size_t keys_max =
      std::clamp<size_t>(message_bytes / sizeof(uint64_t), 1, size_t{kFenceKeysMax});
  for (size_t first = 0; first < keys.size(); first += keys_max) {
    const auto part = std::span(keys).subspan(first, std::min(keys_max, keys.size() - first));
    request.id = ++requests_made_;
    request.keys.assign(part.begin(), part.end());
    asked.open_requests[request.id] = encode(EngineMessage(request));
  }
  ++shared_.counts.fences_asked;
  asked_.push_back(std::move(asked));
}

std::vector<Fencing::Answer> Fencing::take_answers() {
  std::vector<Answer> answers;
  std::erase_if(asked_, [&](Asked& asked) {
    auto result = decide(asked);
    if (!result.has_value()) return false;
    if (!result->ok()) ++shared_.counts.fences_failed;
    answers.push_back({.path = asked.path,
                       .transfer = asked.transfer,
                       .peer = asked.peer,
                       .result = *std::move(result)});
    return true;
  });
  return answers;
}

std::optional<Result<ArrivalState>> Fencing::decide(Asked& asked) {
  if (asked.was_refused) {
    return make_error(Code::kUnavailable, "the peer's rail cannot close a registration for good");
  }
  if (asked.open_requests.empty()) return asked.arrival;
  const Peer* peer = parts_.peers.find(asked.peer);
  if (peer == nullptr || peer->open_count() == 0) {
    return make_error(Code::kUnavailable, "no rail is left to ask the peer to close its memory");
  }
  if (shared_.now >= asked.deadline) {
    return make_error(Code::kDeadlineExceeded,
                      "the peer did not answer the request to close its memory");
  }
  if (shared_.now >= asked.retry_at) {
    asked.retry_at = shared_.now + shared_.options.fence_retry;
    for (const auto& [id, bytes] : asked.open_requests) {
      parts_.messenger.send({.peer = asked.peer, .bytes = bytes});
    }
  }
  return std::nullopt;
}

std::optional<TimePoint> Fencing::next_deadline() const {
  std::optional<TimePoint> next;
  for (const Asked& asked : asked_) {
    const TimePoint due = std::min(asked.retry_at, asked.deadline);
    if (!next.has_value() || due < *next) next = due;
  }
  return next;
}

void Fencing::received(const FenceReply& reply) {
  for (Asked& asked : asked_) {
    if (asked.open_requests.erase(reply.id) == 0) continue;
    asked.was_refused |= !reply.fenced;
    asked.arrival = reply.arrival;
  }
}

void Fencing::received(const FenceRequest& request) {
  if (request.rail >= shared_.rails.size() || served_.size() >= kServedMax) {
    ++shared_.counts.messages_unreadable;
    return;
  }
  // A grant that was revoked is as good as closed; but somebody who knows none of our keys is a
  // stranger, and gets no answer.
  const bool is_known = std::ranges::any_of(
      request.keys, [&](uint64_t key) { return parts_.regions.has_key(request.rail, key); });
  if (!is_known) {
    ++shared_.counts.messages_unreadable;
    return;
  }
  if (!shared_.rails[request.rail]->can_fence()) return reply(request, false);
  Served served{.request = request, .closed_in_poll = polls_count_};
  for (uint64_t key : request.keys) {
    if (!parts_.regions.close_key(request.rail, key)) served.open_keys.insert(key);
  }
  for (uint32_t rail = 0; request.immediate.has_value() && rail < shared_.rails.size(); ++rail) {
    served.undrained_rails.insert(rail);
  }
  served_.push_back(std::move(served));
  reply_to_those_over();
}

void Fencing::region_closed(uint32_t rail, uint64_t key) {
  for (Served& served : served_) {
    if (served.request.rail == rail && served.open_keys.erase(key) > 0) {
      served.closed_in_poll = polls_count_;
    }
  }
  reply_to_those_over();
}

void Fencing::poll_ends(uint32_t rail, bool is_drained) {
  if (!is_drained || served_.empty()) return;
  for (Served& served : served_) {
    const bool was_closed = served.open_keys.empty() && served.closed_in_poll < polls_count_;
    if (was_closed) served.undrained_rails.erase(rail);
  }
  reply_to_those_over();
}

void Fencing::reply_to_those_over() {
  std::erase_if(served_, [&](const Served& served) {
    if (served.is_over()) reply(served.request, true);
    return served.is_over();
  });
}

void Fencing::reply(const FenceRequest& request, bool is_fenced) {
  const Peer* known = parts_.peers.find_by_address(request.reply_to);
  const bool is_guest = known == nullptr;
  PeerId peer;
  if (is_guest) {
    auto added = parts_.peers.add("fence guest", request.reply_to);
    if (!added.ok()) {
      ++shared_.counts.messages_unreadable;
      return;  // it asks again
    }
    peer = *added;
  } else {
    peer = known->id;
  }
  ++shared_.counts.fences_served;
  FenceReply reply{.id = request.id, .fenced = is_fenced};
  if (request.immediate.has_value()) {
    reply.arrival = parts_.arrivals.state(arrival_of(*request.immediate));
  }
  parts_.messenger.send({.peer = peer,
                         .bytes = encode(EngineMessage(reply)),
                         .on_end =
                             [this, peer, is_guest](const Result<void>&) {
                               Peer* guest = is_guest ? parts_.peers.find(peer) : nullptr;
                               if (guest != nullptr) parts_.peers.close(*guest);
                             },
                         .avoided_rail = request.rail});
}

}  // namespace tandem::transfer
