#include "transfer/engine/peer_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tandem::transfer {

uint32_t Peer::open_count() const {
  return static_cast<uint32_t>(std::ranges::count_if(
      paths, [](const Path& path) { return path.state == Path::State::kOpen; }));
}

Path* Peer::best_path(uint32_t avoided_rail) {
  Path* best = nullptr;
  for (Path& path : paths) {
    if (path.state != Path::State::kOpen || path.is_full || path.rail == avoided_rail) continue;
    const auto load = [](const Path& p) { return std::pair(p.posted_bytes, p.posted_count); };
    if (best == nullptr || load(path) < load(*best)) best = &path;
  }
  return best;
}

Result<PeerId> PeerTable::add(std::string name, const EngineAddress& address) {
  if (peers_.size() >= shared_.options.peers_max) {
    return make_error(Code::kResourceExhausted,
                      fmt::format("{} has {} peers, which is the most it may have; close some",
                                  shared_.options.name, peers_.size()));
  }
  auto peer = std::make_unique<Peer>(
      Peer{.id = {++peers_made_}, .name = std::move(name), .address = address});
  if (address.rails.empty()) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("the address of peer {} names no rail", peer->name));
  }
  const size_t rails_count = std::min(shared_.rails.size(), address.rails.size());
  for (uint32_t rail = 0; rail < rails_count; ++rail) {
    auto id = shared_.rails[rail]->add_peer(address.rails[rail]);
    if (!id.ok()) {
      for (Path& path : peer->paths) {
        paths_[path.rail].erase(path.id.value);
        shared_.rails[path.rail]->close_peer(path.id);
      }
      return with_context(id.error(), "peer " + peer->name);
    }
    peer->paths.push_back({.peer = peer.get(), .rail = rail, .id = *id});
    paths_[rail][id->value] = &peer->paths.back();
  }
  peer->piece_bytes_max = rails_count > 1 ? shared_.options.stripe_bytes : ~uint64_t{0};
  for (uint32_t rail = 0; rail < rails_count; ++rail) {
    peer->piece_bytes_max =
        std::min(peer->piece_bytes_max, shared_.rails[rail]->limits().write_bytes_max);
  }
  const PeerId id = peer->id;
  peers_.emplace(id, std::move(peer));
  return id;
}

Peer* PeerTable::find(PeerId id) {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : found->second.get();
}

Peer* PeerTable::find_by_address(const EngineAddress& address) {
  const auto found = std::ranges::find_if(peers_, [&](const auto& entry) {
    return entry.second->address == address && entry.second->open_count() > 0;
  });
  return found == peers_.end() ? nullptr : found->second.get();
}

Path* PeerTable::path_of(uint32_t rail, RailPeerId id) {
  const auto found = paths_[rail].find(id.value);
  return found == paths_[rail].end() ? nullptr : found->second;
}

void PeerTable::lose(Path& path, const Error& error) {
  if (path.state != Path::State::kOpen) return;
  path.state = Path::State::kClosing;
  path.error = error;
  ++shared_.counts.paths_lost;
  shared_.rails[path.rail]->close_peer(path.id);
}

void PeerTable::lose_rail(uint32_t rail, const Error& error) {
  for (const auto& [id, path] : paths_[rail]) lose(*path, error);
}

bool PeerTable::lose_stalled() {
  bool is_any = false;
  for (const auto& [id, peer] : peers_) {
    for (Path& path : peer->paths) {
      const Duration still = shared_.now - path.moved_at;
      if (path.state != Path::State::kOpen || path.posted_count == 0 ||
          still < shared_.options.stall_max) {
        continue;
      }
      const double seconds = std::chrono::duration<double>(still).count();
      lose(path, make_error(Code::kDeadlineExceeded,
                            fmt::format("nothing was delivered for {:.3f} s, {} bytes under way",
                                        seconds, path.posted_bytes)));
      is_any = true;
    }
  }
  return is_any;
}

void PeerTable::forgive_stalls() {
  for (const auto& [id, peer] : peers_) {
    for (Path& path : peer->paths) path.moved_at = shared_.now;
  }
}

void PeerTable::close(Peer& peer) {
  peer.is_closing = true;
  const Error error = make_error(Code::kUnavailable, "the peer was closed by its owner");
  for (Path& path : peer.paths) lose(path, error);
  forget_if_over(peer);
}

void PeerTable::settle(Path& path) {
  path.state = Path::State::kLost;
  paths_[path.rail].erase(path.id.value);
  forget_if_over(*path.peer);
}

void PeerTable::forget_if_over(Peer& peer) {
  const bool is_over = std::ranges::all_of(
      peer.paths, [](const Path& other) { return other.state == Path::State::kLost; });
  if (is_over && peer.is_closing) peers_.erase(peer.id);
}

void PeerTable::posted(Path& path, uint64_t bytes) {
  if (path.posted_count++ == 0) path.moved_at = shared_.now;
  path.posted_bytes += bytes;
  ++posted_count_;
}

void PeerTable::ended(Path& path, uint64_t bytes) {
  TANDEM_CHECK(path.posted_count > 0, "a post ends that was not posted");
  --path.posted_count;
  path.posted_bytes -= bytes;
  path.moved_at = shared_.now;
  --posted_count_;
}

void PeerTable::full(Path& path) {
  path.is_full = true;
  full_.push_back(&path);
}

void PeerTable::clear_full() {
  for (Path* path : full_) path->is_full = false;
  full_.clear();
}

Error PeerTable::lost_error(const Peer& peer) const {
  std::string rails;
  for (const Path& path : peer.paths) {
    rails += fmt::format("{}rail {} ({}): {}", rails.empty() ? "" : "; ", path.rail,
                         shared_.rails[path.rail]->name(), path.error.what);
  }
  return make_error(Code::kUnavailable,
                    fmt::format("peer {} cannot be reached from {} any more: {}", peer.name,
                                shared_.options.name, rails));
}

}  // namespace tandem::transfer
