#include "transfer/engine/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tandem::transfer {
namespace {

// Pieces that a transfer posts before the next one has its turn. Large enough that the work of a
// turn does not count, small enough that none waits long for the others.
constexpr uint32_t kTurnPieces = 16;

}  // namespace

bool Writer::post_all() {
  bool has_moved = false;
  bool moves = true;
  steps_left_ = shared_.options.steps_max * static_cast<uint32_t>(shared_.rails.size());
  while (moves && steps_left_ > 0) {
    moves = false;
    round_.clear();
    round_.swap(parts_.transfers.active());
    for (Transfer* transfer : round_) transfer->is_active = false;
    for (Transfer* transfer : round_) moves |= take_turn(*transfer);
    has_moved |= moves;
  }
  return has_moved;
}

bool Writer::take_turn(Transfer& transfer) {
  const TransferId id = transfer.id;
  bool has_moved = false;
  for (uint32_t i = 0; i < kTurnPieces && steps_left_ > 0; ++i) {
    const Step step = post_one(transfer);
    if (step == Step::kNothing) break;
    has_moved = true;
    if (step == Step::kFailed) break;
    --steps_left_;
  }
  if (has_moved) settle(transfer);
  Transfer* alive = parts_.transfers.find(id);
  if (alive != nullptr && alive->has_pieces()) parts_.transfers.activate(*alive);
  return has_moved;
}

Writer::Step Writer::post_one(Transfer& transfer) {
  std::optional<Piece> piece;
  Path* path = nullptr;
  // A slice whose last part must wait gives no piece; the one behind it may.
  while (!piece.has_value()) {
    const Target* target = parts_.transfers.next_target(transfer);
    if (target == nullptr) return Step::kNothing;
    Peer* peer = parts_.peers.find(target->peer);
    if (peer == nullptr || peer->open_count() == 0) {
      parts_.transfers.fail(transfer, peer == nullptr
                                          ? make_error(Code::kUnavailable, "the peer was closed")
                                          : parts_.peers.lost_error(*peer));
      return Step::kFailed;
    }
    path = choose_path(*peer);
    if (path == nullptr) return Step::kNothing;
    piece = parts_.transfers.take_piece(transfer, peer->piece_bytes_max);
  }
  const auto place = static_cast<uint32_t>(free_.empty() ? posted_.size() : free_.back());
  RailWrite write{.peer = path->id,
                  .target = piece->target->descriptor.rails[path->rail],
                  .target_offset = piece->range.target_offset,
                  .bytes = piece->range.bytes,
                  .token = place};
  if (piece->memory != nullptr) {
    write.source = piece->memory->sources[path->rail];
    write.source_offset = piece->range.source_offset;
  }
  if (piece->has_immediate) write.immediate = immediate_of(*transfer.options.arrival);
  if (shared_.rails[path->rail]->post_write(write) == Post::kFull) {
    parts_.peers.full(*path);
    parts_.transfers.put_back(*piece);
    return post_one(transfer);  // another rail may have room; each call excludes one more
  }
  if (free_.empty()) {
    posted_.emplace_back();
  } else {
    free_.pop_back();
  }
  posted_[place] = {.piece = *piece, .path = path};
  ++transfer.posted_count;
  ++rail_posts_[path->rail];
  ++shared_.counts.writes_posted;
  parts_.peers.posted(*path, piece->range.bytes);
  return Step::kPosted;
}

Path* Writer::choose_path(Peer& peer) {
  while (true) {
    Path* path = peer.best_path();
    if (path == nullptr) return nullptr;
    const uint32_t posts_max = shared_.rails[path->rail]->limits().posts_max;
    if (rail_posts_[path->rail] < posts_max) return path;
    parts_.peers.full(*path);
  }
}

void Writer::ended(uint32_t post, RailOutcome outcome, const Error& error) {
  TANDEM_CHECK(post < posted_.size() && posted_[post].path != nullptr,
               "a rail ends a write that was not posted");
  const auto [piece, path] = std::exchange(posted_[post], {});
  free_.push_back(post);
  Transfer& transfer = *piece.transfer;
  --transfer.posted_count;
  --rail_posts_[path->rail];
  parts_.peers.ended(*path, piece.range.bytes);
  switch (outcome) {
    case RailOutcome::kDelivered:
      parts_.transfers.delivered(piece);
      break;
    case RailOutcome::kRejected:
      parts_.transfers.fail(transfer,
                            with_context(error, fmt::format("peer {}", path->peer->name)));
      parts_.transfers.drop(piece);
      break;
    case RailOutcome::kNotSent:
      parts_.peers.lose(*path, error);
      if (transfer.error.has_value()) {
        parts_.transfers.drop(piece);
      } else {
        ++shared_.counts.writes_repeated;
        parts_.transfers.put_back(piece);
      }
      break;
    case RailOutcome::kUnknown:
      parts_.peers.lose(*path, error);
      held_[path].push_back(piece);
      ++transfer.held_count;
      transfer.is_paused |= piece.has_immediate;
      break;
  }
  settle(transfer);
}

std::vector<uint64_t> Writer::keys_in_doubt(const Path& path) const {
  std::vector<uint64_t> keys;
  const auto held = held_.find(&path);
  if (held == held_.end()) return keys;
  for (const Piece& piece : held->second) {
    keys.push_back(piece.target->descriptor.rails[path.rail].key);
  }
  std::ranges::sort(keys);
  keys.erase(std::ranges::unique(keys).begin(), keys.end());
  return keys;
}

void Writer::fenced(const Path& path, const Result<ArrivalState>& result) {
  const auto held = held_.extract(&path);
  if (held.empty()) return;
  std::optional<Error> unfenced;
  if (!result.ok()) {
    unfenced = with_context(
        result.error(),
        fmt::format("peer {}, rail {} ({}), was lost with writes of unknown fate ({}), and they "
                    "stay in doubt",
                    path.peer->name, path.rail, shared_.rails[path.rail]->name(), path.error.what));
  }
  for (const Piece& piece : held.mapped()) forgo(piece, path, unfenced);
}

/// Decides about a piece whose fate was unknown.
void Writer::forgo(const Piece& piece, const Path& path, const std::optional<Error>& unfenced) {
  Transfer& transfer = *piece.transfer;
  --transfer.held_count;
  if (unfenced.has_value()) {
    transfer.is_settled = false;
    parts_.transfers.fail(transfer, *unfenced);
  } else if (piece.has_immediate && !transfer.options.is_sole_writer) {
    parts_.transfers.fail(
        transfer, with_context(path.error,
                               "a rail was lost with an immediate of unknown fate, and sending "
                               "it again could stand for another writer's"));
  }
  if (transfer.error.has_value()) {
    parts_.transfers.drop(piece);
  } else {
    parts_.transfers.fenced(piece, path.rail);
  }
  settle(transfer);
}

/// Ends the transfer if it is over. If all that it waits for is what became of its immediates, asks
/// the peers.
void Writer::settle(Transfer& transfer) {
  const bool asks = !transfer.doubtful.empty() && transfer.posted_count == 0 &&
                    transfer.held_count == 0 && transfer.questions_count == 0;
  if (!asks) return parts_.transfers.settle(transfer);
  std::vector<PeerId> asked;
  for (const Piece& piece : transfer.doubtful) {
    const PeerId peer = piece.target->peer;
    if (std::ranges::find(asked, peer) != asked.end()) continue;
    asked.push_back(peer);
    ++transfer.questions_count;
    questions_.push_back({.transfer = transfer.id,
                          .peer = peer,
                          .rail = piece.lost_rail,
                          .key = piece.target->descriptor.rails[piece.lost_rail].key,
                          .immediate = immediate_of(*transfer.options.arrival)});
  }
}

void Writer::answered(TransferId id, PeerId peer, const Result<ArrivalState>& state) {
  Transfer* transfer = parts_.transfers.find(id);
  if (transfer == nullptr) return;  // it failed meanwhile
  parts_.transfers.resolve(*transfer, peer, state);
  settle(*transfer);
}

}  // namespace tandem::transfer
