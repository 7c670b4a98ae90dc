#include "transfer/engine/messenger.h"

#include <fmt/format.h>

#include <utility>

namespace tandem::transfer {

bool Messenger::post_all() {
  bool has_moved = false;
  for (size_t left = waiting_.size(); left > 0; --left) {
    Outgoing message = std::move(waiting_.front());
    waiting_.pop_front();
    Peer* peer = peers_.find(message.peer);
    if (peer == nullptr || peer->open_count() == 0) {
      end(message, peer == nullptr ? make_error(Code::kUnavailable, "message: the peer was closed")
                                   : with_context(peers_.lost_error(*peer), "message"));
      has_moved = true;
      continue;
    }
    Path* path = peer->best_path(message.avoided_rail);
    if (path == nullptr) path = peer->best_path();
    const auto place = static_cast<uint32_t>(free_.empty() ? posted_.size() : free_.back());
    if (path == nullptr || shared_.rails[path->rail]->post_message(
                               path->id, message.bytes, kMessageToken | place) == Post::kFull) {
      if (path != nullptr) peers_.full(*path);
      waiting_.push_back(std::move(message));
      continue;
    }
    if (free_.empty()) {
      posted_.emplace_back();
    } else {
      free_.pop_back();
    }
    peers_.posted(*path, message.bytes.size());
    posted_[place] = {.message = std::move(message), .path = path};
    has_moved = true;
  }
  return has_moved;
}

void Messenger::ended(uint32_t post, RailOutcome outcome, const Error& error) {
  TANDEM_CHECK(post < posted_.size() && posted_[post].path != nullptr,
               "a rail ends a message that was not posted");
  Posted ended = std::exchange(posted_[post], {});
  free_.push_back(post);
  peers_.ended(*ended.path, ended.message.bytes.size());
  switch (outcome) {
    case RailOutcome::kDelivered:
      ++shared_.counts.messages_sent;
      return end(ended.message, {});
    case RailOutcome::kNotSent:
      peers_.lose(*ended.path, error);
      return waiting_.push_front(std::move(ended.message));
    case RailOutcome::kUnknown:
      peers_.lose(*ended.path, error);
      [[fallthrough]];
    case RailOutcome::kRejected:
      return end(ended.message, with_context(error, "message to " + ended.path->peer->name));
  }
}

void Messenger::end(Outgoing& message, Result<void> result) {
  if (!message.on_end) return;
  shared_.due.push_back(
      [on_end = std::move(message.on_end), result = std::move(result)] { on_end(result); });
}

}  // namespace tandem::transfer
