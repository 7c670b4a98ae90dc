#include "transfer/libfabric/rail.h"

#include <fmt/format.h>

#include <algorithm>

#include "transfer/libfabric/prepare.h"
#include "transfer/libfabric/rail_impl.h"
#include "transfer/libfabric/sweep.h"

namespace tandem::transfer {
namespace {

constexpr uint64_t kWriteBytesMax = uint64_t{1} << 30;
constexpr uint32_t kMessageBytes = kMessageBytesMin;

}  // namespace

Result<std::unique_ptr<Rail>> create_libfabric_rail(const LibfabricRailOptions& options) {
  return LibfabricRail::open(options);
}

Result<std::unique_ptr<Rail>> LibfabricRail::open(const LibfabricRailOptions& options) {
  if (options.network.provider == "shm") sweep_shared_memory();
  auto endpoint = std::make_unique<LibfabricEndpoint>(
      TANDEM_TRY(LibfabricEndpoint::open({.network = options.network})));
  if (endpoint->has_connections() && !endpoint->cuts_connections()) {
    return make_error(Code::kFailedPrecondition,
                      fmt::format("libfabric ran before it was told to cut connections; call "
                                  "prepare_libfabric() first in main(), or set {}=1",
                                  kCutsConnections));
  }
  const fi_info& info = endpoint->info();
  // A write may take two operations, and another rail's share of the provider is its own.
  const auto posts_max = static_cast<uint32_t>(
      std::min<size_t>(options.posts_max, std::max<size_t>(info.tx_attr->size / 4, 1)));
  auto posts = TANDEM_TRY(LibfabricPosts::create(*endpoint, posts_max, kMessageBytes));
  auto mailbox = TANDEM_TRY(LibfabricMailbox::open(*endpoint, options.receives_max, kMessageBytes));
  std::unique_ptr<LibfabricRail> rail(
      new LibfabricRail(options, std::move(endpoint), std::move(posts), std::move(mailbox)));
  rail->address_ = TANDEM_TRY(rail->peers_.own_address());
  rail->name_ = fmt::format("{} {}", info.fabric_attr->prov_name, info.domain_attr->name);
  rail->limits_ = {
      .write_bytes_max = std::min<uint64_t>(info.ep_attr->max_msg_size, kWriteBytesMax),
      .message_bytes_max = kMessageBytes,
      .posts_max = posts_max};
  return std::unique_ptr<Rail>(std::move(rail));
}

Result<RailPeerId> LibfabricRail::add_peer(std::span<const std::byte> address) {
  const RailPeerId id = TANDEM_TRY(peers_.add(address));
  if (failure_.has_value()) peers_.at(id).loss = failure_;
  return id;
}

void LibfabricRail::close_peer(RailPeerId id) {
  LibfabricPeer& peer = peers_.at(id);
  TANDEM_CHECK(!peer.is_closing, "a peer is closed twice");
  peer.is_closing = true;
  lose(id, peer, make_error(Code::kCancelled, "the peer was closed here"));
  settling_.push_back(id);
}

Result<Registration> LibfabricRail::register_memory(const MemoryBlock& memory, Access access) {
  return regions_.add(memory, access);
}

void LibfabricRail::set_writer(RailRegionId region, RailPeerId writer) {
  regions_.set_writer(region, peers_.at(writer).name);
}

void LibfabricRail::close_region(RailRegionId region) {
  const LibfabricRegions::Closed closed = regions_.close(region);
  closing_.push_back(region);
  if (closed.access == Access::kSource || !can_fence()) return;
  // The key is gone, but a write that has begun goes on until its connection ends.
  for (auto& [id, peer] : peers_.all()) {
    if (!closed.writer.empty() && peer.name != closed.writer) continue;
    lose(id, peer,
         path_error(peer, "write",
                    "its registration here was closed, which cuts the "
                    "connection"));
    if (closed.writer.empty()) cut(peer.name);
  }
  if (!closed.writer.empty()) cut(closed.writer);
}

Post LibfabricRail::post_write(const RailWrite& write) {
  LibfabricPeer& peer = peers_.at(write.peer);
  if (peer.loss.has_value()) return refuse(peer, write.token);
  if (posts_.is_full()) return Post::kFull;
  return submit_new(write.peer, peer, posts_.add_write(write));
}

Post LibfabricRail::post_message(RailPeerId id, std::span<const std::byte> bytes, uint64_t token) {
  TANDEM_CHECK(!bytes.empty() && bytes.size() <= limits_.message_bytes_max);
  LibfabricPeer& peer = peers_.at(id);
  if (peer.loss.has_value()) return refuse(peer, token);
  if (posts_.is_full()) return Post::kFull;
  return submit_new(id, peer, posts_.add_message(id, bytes, token));
}

Post LibfabricRail::refuse(const LibfabricPeer& peer, uint64_t token) {
  TANDEM_CHECK(!peer.is_closing, "a peer is used that was closed");
  // As bounded as posts are.
  if (ready_.size() >= limits_.posts_max) return Post::kFull;
  ready_.push_back({.token = token, .outcome = RailOutcome::kNotSent, .error = *peer.loss});
  return Post::kAccepted;
}

Post LibfabricRail::submit_new(RailPeerId id, LibfabricPeer& peer, uint32_t index) {
  // What is batched goes with the next poll.
  if (!peer.waiting.empty() || endpoint_->batches_writes()) {
    wait(peer, index);
    return Post::kAccepted;
  }
  const ssize_t status = submit(peer, std::span(&index, 1));
  if (status == -FI_EAGAIN) {
    // With something under way there is room again after a poll. Without, a connection is being
    // made, which may fail; and what has begun cannot be taken back.
    if (peer.posts_under_way > 0 && !posts_.at(index).has_begun) {
      posts_.remove(index);
      return Post::kFull;
    }
    wait(peer, index);
  } else if (status != 0) {
    wait(peer, index);
    lose(id, peer,
         path_error(peer, posts_.at(index).is_message ? "message" : "write",
                    fi_strerror(static_cast<int>(-status))));
  }
  return Post::kAccepted;
}

void LibfabricRail::wait(LibfabricPeer& peer, uint32_t index) {
  peer.waiting.push_back(index);
  ++waiting_count_;
}

ssize_t LibfabricRail::submit(LibfabricPeer& peer, std::span<const uint32_t> indices) {
  const bool is_batch = endpoint_->batches_writes() && !posts_.at(indices.front()).is_message;
  const ssize_t status = is_batch ? posts_.submit_batch(indices, peer.address, regions_)
                                  : posts_.submit(indices.front(), peer.address, regions_);
  if (status == 0) {
    peer.posts_under_way += static_cast<uint32_t>(indices.size());
    peer.connecting_since.reset();
  } else if (status == -FI_EAGAIN && peer.posts_under_way == 0 && !peer.connecting_since) {
    peer.connecting_since = std::chrono::steady_clock::now();
  }
  return status;
}

}  // namespace tandem::transfer
