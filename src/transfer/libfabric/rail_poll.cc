#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "transfer/libfabric/rail_impl.h"

namespace tandem::transfer {
namespace {

/// How often peers are looked after that give no sign themselves.
constexpr Duration kWatchInterval = std::chrono::milliseconds(10);
/// Of writes that are confirmed together. Enough that a page of 32 KiB pays an eighth of the two
/// small packets, and little enough that its end does not wait for long.
constexpr uint64_t kBatchBytes = uint64_t{256} << 10;

const LibfabricContext& context_of(const void* context) {
  return *static_cast<const LibfabricContext*>(context);
}

}  // namespace

uint32_t LibfabricRail::poll(RailEvents& events, uint32_t events_max) {
  uint32_t told = 0;
  tell_ready(events, events_max, told);
  if (!failure_.has_value()) {
    if (waiting_count_ > 0) {
      for (auto& [id, peer] : peers_.all()) submit_waiting(id, peer);
    }
    told += read_completions(events, events_max - told);
    watch();
  } else {
    settle();
  }
  tell_ready(events, events_max, told);
  return told;
}

void LibfabricRail::tell_ready(RailEvents& events, uint32_t events_max, uint32_t& told) {
  for (; told < events_max && !ready_.empty(); ++told) {
    const RailEvent event = std::move(ready_.front());
    ready_.pop_front();
    tell(event, events);
  }
}

void LibfabricRail::submit_waiting(RailPeerId id, LibfabricPeer& peer) {
  while (!peer.waiting.empty()) {
    std::array<uint32_t, LibfabricPosts::kBatchMax> batch;
    size_t count = 0;
    uint64_t bytes = 0;
    do {
      const LibfabricPosts::Post& post = posts_.at(peer.waiting[count]);
      if (count > 0 && (post.is_message || bytes + post.write.bytes > kBatchBytes)) break;
      bytes += post.write.bytes;
      batch[count] = peer.waiting[count];
      ++count;
      if (post.is_message) break;
    } while (endpoint_->batches_writes() && count < batch.size() && count < peer.waiting.size());
    const ssize_t status = submit(peer, std::span(batch).first(count));
    if (status == -FI_EAGAIN) return;
    if (status != 0) {
      return lose(id, peer,
                  path_error(peer, posts_.at(batch[0]).is_message ? "message" : "write",
                             fi_strerror(static_cast<int>(-status))));
    }
    peer.waiting.erase(peer.waiting.begin(),
                       peer.waiting.begin() + static_cast<std::ptrdiff_t>(count));
    waiting_count_ -= static_cast<uint32_t>(count);
  }
}

uint32_t LibfabricRail::read_completions(RailEvents& events, uint32_t events_max) {
  std::array<fi_cq_data_entry, 32> entries;
  uint32_t told = 0;
  while (told < events_max) {
    const size_t wanted = std::min<size_t>(entries.size(), events_max - told);
    const ssize_t count = fi_cq_read(endpoint_->completions(), entries.data(), wanted);
    if (count > 0) {
      for (ssize_t i = 0; i < count; ++i) {
        // Entries that were read are told even when those before them had more than one event.
        const uint32_t left = std::max<uint32_t>(events_max, told) - told;
        told += handle(entries[static_cast<size_t>(i)], events, left);
      }
      // Nobody waits for the queue to be empty: the next poll sees the rest.
      const bool is_awaited = !settling_.empty() || !closing_.empty();
      if (static_cast<size_t>(count) < wanted && !is_awaited) break;
    } else if (count == -FI_EAVAIL) {
      handle_error();
    } else if (count == -FI_EAGAIN) {
      settle();
      break;
    } else {
      fail(libfabric_error(fmt::format("rail {}: fi_cq_read", name_), count));
      break;
    }
  }
  return told;
}

uint32_t LibfabricRail::handle(const fi_cq_data_entry& entry, RailEvents& events,
                               uint32_t events_max) {
  // Of an arrival the context means nothing.
  if ((entry.flags & FI_REMOTE_CQ_DATA) != 0)
    return handle_arrivals(entry.data, events, events_max);
  if ((entry.flags & FI_REMOTE_WRITE) != 0 || entry.op_context == nullptr) return 0;
  const LibfabricContext& context = context_of(entry.op_context);
  if ((entry.flags & FI_RECV) == 0) return handle_end(context.index, events, events_max);
  const std::span<const std::byte> message = mailbox_.message(context, entry.len);
  uint32_t told = 0;
  if (events_max > 0) {
    events.message_arrived(message);
    told = 1;
  } else {
    RailEvent& later = ready_.emplace_back();
    later.kind = RailEvent::Kind::kMessage;
    later.message.assign(message.begin(), message.end());
  }
  repost(context);
  return told;
}

uint32_t LibfabricRail::handle_arrivals(uint64_t data, RailEvents& events, uint32_t events_max) {
  const auto arrivals = endpoint_->batches_writes()
                            ? LibfabricPosts::arrivals_of(data)
                            : LibfabricPosts::Arrivals{.immediate = static_cast<uint32_t>(data)};
  uint32_t told = 0;
  for (; told < std::min(arrivals.count, events_max); ++told) {
    events.immediate_arrived(arrivals.immediate);
  }
  for (uint32_t i = told; i < arrivals.count; ++i) {
    RailEvent& later = ready_.emplace_back();
    later.kind = RailEvent::Kind::kImmediate;
    later.immediate = arrivals.immediate;
  }
  return told;
}

uint32_t LibfabricRail::handle_end(uint32_t index, RailEvents& events, uint32_t events_max) {
  uint32_t told = 0;
  for (uint32_t next = index; next != LibfabricPosts::kAlone;) {
    LibfabricPosts::Post& post = posts_.at(next);
    if (post.state == State::kRetired) return told;
    TANDEM_CHECK(post.state == State::kUnderWay || post.state == State::kAbandoned,
                 "libfabric ended an operation twice");
    const uint64_t token = post.write.token;
    --peers_.at(post.write.peer).posts_under_way;
    if (post.state == State::kAbandoned) {
      settling_.push_back(post.write.peer);
    } else if (told < events_max) {
      events.post_ended(token, RailOutcome::kDelivered, nullptr);
      ++told;
    } else {
      ready_.emplace_back().token = token;  // delivered, as a new event says
    }
    posts_.remove(std::exchange(next, post.next_of_batch));
  }
  return told;
}

void LibfabricRail::handle_error() {
  fi_cq_err_entry entry{};
  const ssize_t status = fi_cq_readerr(endpoint_->completions(), &entry, 0);
  if (status == -FI_EAGAIN) return;
  if (status < 0)
    return fail(libfabric_error(fmt::format("rail {}: fi_cq_readerr", name_), status));
  // What failed to arrive is its writer's trouble.
  if ((entry.flags & FI_REMOTE_WRITE) != 0 || entry.op_context == nullptr) return;
  const LibfabricContext& context = context_of(entry.op_context);
  if ((entry.flags & FI_RECV) != 0) return repost(context);
  LibfabricPosts::Post& post = posts_.at(context.index);
  if (post.state == State::kRetired) return;
  const RailPeerId id = post.write.peer;
  LibfabricPeer& peer = peers_.at(id);
  lose(id, peer, path_error(peer, post.is_message ? "message" : "write", fi_strerror(entry.err)));
  // Of a cut connection everything ends together, and a write of two operations may fail twice.
  if (endpoint_->cuts_connections()) return;
  --peer.posts_under_way;
  posts_.remove(context.index);
  settling_.push_back(id);
}

void LibfabricRail::repost(const LibfabricContext& context) {
  if (const auto posted = mailbox_.post_again(context); !posted.ok()) fail(posted.error());
}

void LibfabricRail::watch() {
  const TimePoint now = std::chrono::steady_clock::now();
  if (now < next_watch_) return;
  next_watch_ = now + kWatchInterval;
  if (const auto posted = mailbox_.post_waiting(); !posted.ok()) return fail(posted.error());
  for (auto& [id, peer] : peers_.all()) {
    if (peer.process.has_value() && (!peer.loss.has_value() || peer.is_closing) &&
        peer.process->has_ended()) {
      lose(id, peer, path_error(peer, "write", "its process has ended"));
      settling_.push_back(id);
    } else if (peer.connecting_since && now - *peer.connecting_since > options_.connect_max) {
      lose(id, peer,
           path_error(
               peer, "connect",
               fmt::format("it did not answer within {} ms; is it running, and is the address "
                           "reachable from here?",
                           options_.connect_max.count())));
    }
  }
}

bool LibfabricRail::may_sleep() {
  if (!ready_.empty() || waiting_count_ > 0 || !settling_.empty() || !closing_.empty() ||
      failure_.has_value() || endpoint_->descriptor() < 0) {
    return false;
  }
  fid* queue = &endpoint_->completions()->fid;
  return fi_trywait(endpoint_->fabric(), &queue, 1) == 0;
}

}  // namespace tandem::transfer
