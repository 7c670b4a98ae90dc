#include "transfer/engine/transfer_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace tandem::transfer {

void TransferTable::use(Memory* memory, Target* target, int64_t change) {
  if (memory != nullptr) memory->uses += static_cast<uint64_t>(change);
  target->uses += static_cast<uint64_t>(change);
}

Result<Transfer*> TransferTable::begin(TransferOptions options) {
  if (transfers_.size() >= shared_.options.transfers_max) {
    return make_error(
        Code::kResourceExhausted,
        fmt::format("{} has {} transfers under way, which is the most it may have; try again later",
                    shared_.options.name, transfers_.size()));
  }
  auto transfer = std::make_unique<Transfer>();
  transfer->id = {++transfers_made_};
  transfer->options = std::move(options);
  Transfer* made = transfer.get();
  transfers_.emplace(made->id, std::move(transfer));
  return made;
}

Transfer* TransferTable::find(TransferId id) {
  const auto found = transfers_.find(id);
  return found == transfers_.end() ? nullptr : found->second.get();
}

Result<Transfer*> TransferTable::find_open(TransferId id) {
  Transfer* transfer = find(id);
  if (transfer == nullptr) {
    return make_error(Code::kFailedPrecondition,
                      fmt::format("transfer {} has ended; its writes need a new one", id.value));
  }
  if (transfer->error.has_value()) {
    return make_error(Code::kFailedPrecondition, fmt::format("transfer {} takes no more writes: {}",
                                                             id.value, transfer->error->what));
  }
  if (transfer->is_finished) {
    return make_error(Code::kFailedPrecondition,
                      fmt::format("transfer {} takes no more writes: it was finished", id.value));
  }
  return transfer;
}

Result<void> TransferTable::check_room(uint64_t slices) const {
  if (slices <= shared_.options.slices_max - slices_count_) return {};
  return make_error(
      Code::kResourceExhausted,
      fmt::format("{} slices do not fit: {} of {} wait to be sent from {}; try again later", slices,
                  slices_count_, shared_.options.slices_max, shared_.options.name));
}

void TransferTable::submit(Transfer& transfer, const Slice& slice) {
  transfer.slices.push_back(slice);
  transfer.bytes_submitted += slice.range.bytes;
  use(slice.memory, slice.target, 1);
  ++slices_count_;
  activate(transfer);
}

void TransferTable::activate(Transfer& transfer) {
  if (transfer.is_active) return;
  transfer.is_active = true;
  active_.push_back(&transfer);
}

const Target* TransferTable::next_target(const Transfer& transfer) const {
  if (!transfer.has_pieces()) return nullptr;
  return transfer.ready.empty() ? transfer.slices.front().target : transfer.ready.front().target;
}

std::optional<Piece> TransferTable::take_piece(Transfer& transfer, uint64_t bytes_max) {
  Piece piece{.transfer = &transfer};
  if (!transfer.ready.empty()) {
    piece = transfer.ready.front();
    transfer.ready.pop_front();
    return piece;
  }
  const Slice slice = transfer.slices.front();
  piece.memory = slice.memory;
  piece.target = slice.target;
  const uint64_t bytes_left = slice.range.bytes - transfer.cut_bytes;
  piece.range = {.source_offset = slice.range.source_offset + transfer.cut_bytes,
                 .target_offset = slice.range.target_offset + transfer.cut_bytes,
                 .bytes = std::min(bytes_left, bytes_max)};
  const bool is_last = bytes_left <= bytes_max;
  const bool is_counted = transfer.options.arrival.has_value();
  const bool is_cut = is_counted && (transfer.cut_bytes > 0 || !is_last);
  if (is_cut && transfer.cut == Piece::kNoCut) transfer.cut = make_cut();
  transfer.cut_bytes += piece.range.bytes;
  piece.has_immediate = is_counted && is_last;
  use(piece.memory, piece.target, 1);
  if (is_last) {
    use(slice.memory, slice.target, -1);
    transfer.slices.pop_front();
    transfer.cut_bytes = 0;
    --slices_count_;
  }
  if (!is_cut) return piece;
  if (!is_last) {
    piece.cut = transfer.cut;
    ++cuts_[piece.cut].parts_left;
    return piece;
  }
  const uint32_t cut = std::exchange(transfer.cut, Piece::kNoCut);
  if (cuts_[cut].parts_left > 0) {
    cuts_[cut].is_complete = true;
    cuts_[cut].last = piece;
    return std::nullopt;
  }
  forget_cut(cut);
  return piece;
}

uint32_t TransferTable::make_cut() {
  if (free_cuts_.empty()) {
    cuts_.emplace_back();
    return static_cast<uint32_t>(cuts_.size() - 1);
  }
  const uint32_t cut = free_cuts_.back();
  free_cuts_.pop_back();
  return cut;
}

void TransferTable::forget_cut(uint32_t cut) {
  cuts_[cut] = {};
  free_cuts_.push_back(cut);
}

void TransferTable::part_ended(uint32_t cut) {
  if (--cuts_[cut].parts_left > 0 || !cuts_[cut].is_complete) return;
  const std::optional<Piece> last = cuts_[cut].last;
  forget_cut(cut);
  if (!last.has_value()) return;
  if (last->transfer->error.has_value()) {
    drop(*last);
  } else {
    last->transfer->ready.push_back(*last);
    activate(*last->transfer);
  }
}

void TransferTable::put_back(const Piece& piece) {
  piece.transfer->ready.push_front(piece);
  activate(*piece.transfer);
}

void TransferTable::delivered(const Piece& piece) {
  Transfer& transfer = *piece.transfer;
  transfer.bytes_delivered += piece.range.bytes;
  shared_.counts.bytes_delivered += piece.range.bytes;
  if (piece.cut == Piece::kNoCut) ++shared_.counts.slices_delivered;
  if (piece.has_immediate) ++transfer.immediates_delivered[piece.target->peer];
  const bool is_last_repeat = piece.is_repeat && --transfer.repeats_left == 0;
  drop(piece);
  if (!is_last_repeat || transfer.error.has_value()) return;
  for (const Piece& late : std::exchange(transfer.late_immediates, {})) put_back(late);
}

void TransferTable::drop(const Piece& piece) {
  use(piece.memory, piece.target, -1);
  if (piece.cut != Piece::kNoCut) part_ended(piece.cut);
}

void TransferTable::fenced(Piece piece, uint32_t lost_rail) {
  piece.lost_rail = lost_rail;
  if (piece.has_immediate) {
    piece.transfer->doubtful.push_back(piece);
  } else {
    ++shared_.counts.writes_repeated;
    put_back(piece);
  }
}

Error TransferTable::doubt_error(const Transfer& transfer, PeerId peer,
                                 std::string_view what) const {
  return make_error(Code::kUnavailable,
                    fmt::format("a rail was lost with immediates of unknown fate, and peer {} {} "
                                "(slot {}, epoch {})",
                                peer.value, what, transfer.options.arrival->slot,
                                transfer.options.arrival->epoch));
}

void TransferTable::resolve(Transfer& transfer, PeerId peer, const Result<ArrivalState>& state) {
  --transfer.questions_count;
  if (transfer.error.has_value()) return;
  const auto of_others = std::ranges::stable_partition(
      transfer.doubtful, [&](const Piece& piece) { return piece.target->peer != peer; });
  const std::vector<Piece> pieces(of_others.begin(), of_others.end());
  transfer.doubtful.erase(of_others.begin(), of_others.end());
  const uint64_t delivered_count = transfer.immediates_delivered[peer];
  std::optional<Error> error;
  uint64_t arrived_count = pieces.size();
  if (!state.ok()) {
    error = doubt_error(transfer, peer, "did not say what it counted: " + state.error().what);
  } else if (state->status == ArrivalState::Status::kGone) {
    error = doubt_error(transfer, peer, "does not wait for them any more");
  } else if (state->status == ArrivalState::Status::kWaiting) {
    // Nothing else of this transfer is under way, and nobody else counts there.
    arrived_count = state->counted - delivered_count;
    if (state->counted < delivered_count || arrived_count > pieces.size()) {
      error = doubt_error(transfer, peer,
                          fmt::format("counted {}, which cannot be: {} were delivered and {} are "
                                      "unknown; does another writer count there?",
                                      state->counted, delivered_count, pieces.size()));
    }
  }
  if (error.has_value()) {
    for (const Piece& piece : pieces) drop(piece);
    return fail(transfer, *std::move(error));
  }
  repeat(pieces, arrived_count);
  if (transfer.doubtful.empty()) {
    transfer.is_paused = false;
    activate(transfer);
  }
}

/// Of these pieces of one transfer to one peer, so many immediates arrived, nobody knows which.
void TransferTable::repeat(std::span<const Piece> pieces, uint64_t arrived_count) {
  if (arrived_count == pieces.size()) {
    for (const Piece& piece : pieces) delivered(piece);
    return;
  }
  shared_.counts.writes_repeated += pieces.size();
  shared_.counts.immediates_repeated += pieces.size() - arrived_count;
  if (arrived_count == 0) {
    for (const Piece& piece : pieces) put_back(piece);
    return;
  }
  // The count must not be complete before all of them are there again, and as long as one
  // immediate is missing, it is not.
  Transfer& transfer = *pieces.front().transfer;
  transfer.immediates_delivered[pieces.front().target->peer] += arrived_count;
  for (size_t i = 0; i < pieces.size(); ++i) {
    Piece piece = pieces[i];
    if (i >= arrived_count) {
      use(nullptr, piece.target, 1);
      transfer.late_immediates.push_back(
          {.transfer = &transfer, .target = piece.target, .has_immediate = true});
    }
    piece.has_immediate = false;
    piece.is_repeat = true;
    ++transfer.repeats_left;
    put_back(piece);
  }
}

void TransferTable::fail(Transfer& transfer, Error error) {
  if (transfer.error.has_value()) return;
  transfer.error = std::move(error);
  for (const Slice& slice : transfer.slices) use(slice.memory, slice.target, -1);
  slices_count_ -= static_cast<uint32_t>(transfer.slices.size());
  transfer.slices.clear();
  if (transfer.cut != Piece::kNoCut) {
    const uint32_t cut = std::exchange(transfer.cut, Piece::kNoCut);
    cuts_[cut].is_complete = true;
    if (cuts_[cut].parts_left == 0) forget_cut(cut);
  }
  for (const Piece& piece : std::exchange(transfer.ready, {})) drop(piece);
  for (const Piece& piece : std::exchange(transfer.doubtful, {})) drop(piece);
  for (const Piece& piece : std::exchange(transfer.late_immediates, {})) drop(piece);
}

void TransferTable::settle(Transfer& transfer) {
  if (transfer.posted_count > 0 || transfer.held_count > 0) return;
  if (!transfer.error.has_value()) {
    if (!transfer.is_finished || !transfer.ready.empty() || !transfer.slices.empty()) return;
    if (!transfer.doubtful.empty() || !transfer.late_immediates.empty()) return;
  }
  TransferEnd end{.is_settled = transfer.is_settled,
                  .bytes_submitted = transfer.bytes_submitted,
                  .bytes_delivered = transfer.bytes_delivered};
  if (transfer.error.has_value()) {
    end.outcome =
        with_context(*std::move(transfer.error),
                     fmt::format("transfer {}, {} of {} bytes delivered", transfer.id.value,
                                 end.bytes_delivered, end.bytes_submitted));
  }
  if (transfer.options.on_end) {
    shared_.due.push_back(
        [on_end = std::move(transfer.options.on_end), end = std::move(end)] { on_end(end); });
  }
  std::erase(active_, &transfer);
  transfers_.erase(transfer.id);
}

}  // namespace tandem::transfer
