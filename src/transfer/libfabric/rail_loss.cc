#include <fmt/format.h>

#include <utility>

#include "transfer/libfabric/rail_impl.h"

namespace tandem::transfer {

Error LibfabricRail::path_error(const LibfabricPeer& peer, const char* phase,
                                const std::string& what) const {
  return make_error(Code::kUnavailable,
                    fmt::format("rail {}: {} to {} failed: {}", name_, phase, peer.label, what));
}

void LibfabricRail::cut(std::span<const std::byte> name) {
  // Adding a peer that is there gives the same one; so this finds also who is no peer any more.
  const auto address = endpoint_->add_peer(name);
  if (address.ok()) endpoint_->remove_peer(*address);
}

void LibfabricRail::lose(RailPeerId id, LibfabricPeer& peer, Error error) {
  if (peer.loss.has_value()) return;
  peer.loss = std::move(error);
  peer.connecting_since.reset();
  waiting_count_ -= static_cast<uint32_t>(peer.waiting.size());
  for (const uint32_t index : std::exchange(peer.waiting, {})) {
    const bool has_begun = posts_.at(index).has_begun;
    end(peer, index, has_begun ? RailOutcome::kUnknown : RailOutcome::kNotSent);
    posts_.remove(index);
  }
  settling_.push_back(id);
  if (endpoint_->cuts_connections()) {
    endpoint_->remove_peer(std::exchange(peer.address, FI_ADDR_UNSPEC));
    return;
  }
  // Nobody takes back what the provider has: it ends here, and its place is kept until it does
  // there.
  for (uint32_t index = 0; index < posts_.count(); ++index) {
    LibfabricPosts::Post& post = posts_.at(index);
    if (post.state != State::kUnderWay || post.write.peer != id) continue;
    end(peer, index, RailOutcome::kUnknown);
    post.state = State::kAbandoned;
  }
}

void LibfabricRail::end(LibfabricPeer& peer, uint32_t index, RailOutcome outcome) {
  ready_.push_back(
      {.token = posts_.at(index).write.token, .outcome = outcome, .error = *peer.loss});
}

void LibfabricRail::settle() {
  for (const RailPeerId id : std::exchange(settling_, {})) settle_peer(id);
  for (const RailRegionId region : std::exchange(closing_, {})) {
    ready_.push_back({.kind = RailEvent::Kind::kRegionClosed, .region = region});
  }
}

void LibfabricRail::settle_peer(RailPeerId id) {
  const auto found = peers_.all().find(id);
  if (found == peers_.all().end()) return;  // settled before
  LibfabricPeer& peer = found->second;
  const bool is_gone =
      failure_.has_value() || (peer.process.has_value() && peer.process->has_ended());
  if (endpoint_->cuts_connections() || is_gone) {
    const uint32_t count = posts_.count();
    for (uint32_t index = 0; index < count && peer.posts_under_way > 0; ++index) {
      LibfabricPosts::Post& post = posts_.at(index);
      const bool is_open = post.state == State::kUnderWay || post.state == State::kAbandoned;
      if (!is_open || post.write.peer != id) continue;
      if (post.state == State::kUnderWay) end(peer, index, RailOutcome::kUnknown);
      --peer.posts_under_way;
      if (endpoint_->cuts_connections()) {
        posts_.remove(index);
      } else {
        posts_.retire(index);
        ++peer.posts_retired;
      }
    }
  }
  if (!peer.is_closing || peer.posts_under_way > 0) return;
  // The provider may still look at a peer of which it has something.
  if (peer.address != FI_ADDR_UNSPEC && peer.posts_retired == 0) {
    endpoint_->remove_peer(peer.address);
  }
  ready_.push_back({.kind = RailEvent::Kind::kPeerClosed, .peer = id});
  peers_.remove(id);
}

void LibfabricRail::fail(Error error) {
  if (failure_.has_value()) return;
  failure_ = error;
  ready_.push_back({.kind = RailEvent::Kind::kRailFailed, .error = error});
  for (auto& [id, peer] : peers_.all()) lose(id, peer, error);
}

}  // namespace tandem::transfer
