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

void Fencing::start(Path& path, const std::vector<uint64_t>& keys) {
  Asked asked{.path = &path,
              .peer = path.peer->id,
              .deadline = shared_.now + shared_.options.fence_max,
              .retry_at = shared_.now};
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
    answers.push_back({.path = asked.path, .result = *std::move(result)});
    return true;
  });
  return answers;
}

std::optional<Result<void>> Fencing::decide(Asked& asked) {
  if (asked.was_refused) {
    return make_error(Code::kUnavailable, "the peer's rail cannot close a registration for good");
  }
  if (asked.open_requests.empty()) return Result<void>();
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
    if (asked.open_requests.erase(reply.id) > 0 && !reply.fenced) asked.was_refused = true;
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
  Served served{.request = request};
  for (uint64_t key : request.keys) {
    if (!parts_.regions.close_key(request.rail, key)) served.open_keys.insert(key);
  }
  if (served.open_keys.empty()) {
    reply(request, true);
  } else {
    served_.push_back(std::move(served));
  }
}

void Fencing::region_closed(uint32_t rail, uint64_t key) {
  std::erase_if(served_, [&](Served& served) {
    if (served.request.rail != rail) return false;
    served.open_keys.erase(key);
    if (!served.open_keys.empty()) return false;
    reply(served.request, true);
    return true;
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
  parts_.messenger.send(
      {.peer = peer,
       .bytes = encode(EngineMessage(FenceReply{.id = request.id, .fenced = is_fenced})),
       .on_end =
           [this, peer, is_guest](const Result<void>&) {
             Peer* guest = is_guest ? parts_.peers.find(peer) : nullptr;
             if (guest != nullptr) parts_.peers.close(*guest);
           },
       .avoided_rail = request.rail});
}

}  // namespace tandem::transfer
