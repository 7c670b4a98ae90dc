#pragma once

#include <deque>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "transfer/engine/peer_table.h"
#include "transfer/engine/region_table.h"

namespace tandem::transfer {

struct Transfer;

/// Some bytes of a slice, at most what one write takes. Counts as a use of memory and target.
struct Piece {
  Transfer* transfer = nullptr;
  Memory* memory = nullptr;  ///< null: without bytes
  Target* target = nullptr;
  WriteRange range;
  bool has_immediate = false;
  bool is_repeat = false;  ///< without its immediate, which follows when all repeats are delivered
  uint32_t lost_rail = 0;  ///< of a doubtful one: over which it was posted
  uint32_t cut = kNoCut;   ///< which CutSlice it is a part of, unless it is the last part

  static constexpr uint32_t kNoCut = ~uint32_t{0};
};

/// A slice whose last part waits until all others are delivered.
struct CutSlice {
  uint32_t parts_left = 0;   ///< made and not delivered, without the last
  bool is_complete = false;  ///< no more parts are made
  std::optional<Piece> last;
};

/// Accepted and not begun, or begun at the front of its transfer's queue.
struct Slice {
  Memory* memory = nullptr;
  Target* target = nullptr;
  WriteRange range;
};

struct Transfer {
  TransferId id;
  TransferOptions options;
  std::deque<Slice> slices;
  uint64_t cut_bytes = 0;  ///< of the first slice, already in pieces
  uint32_t cut = Piece::kNoCut;
  std::deque<Piece> ready;  ///< to be posted before any new slice
  uint32_t posted_count = 0;
  uint32_t held_count = 0;  ///< unknown fate, and may still land
  /// Will not land any more, but perhaps did, and so perhaps its immediate. Nothing is posted until
  /// the target has said how many it counted.
  std::vector<Piece> doubtful;
  bool is_paused = false;
  uint32_t questions_count = 0;
  std::unordered_map<PeerId, uint64_t> immediates_delivered;
  uint32_t repeats_left = 0;
  std::vector<Piece> late_immediates;  ///< to be sent when no repeat is left
  bool is_finished = false;
  bool is_active = false;  ///< in the list of those that may have something to post
  std::optional<Error> error;
  bool is_settled = true;
  uint64_t bytes_submitted = 0;
  uint64_t bytes_delivered = 0;

  bool has_pieces() const { return !is_paused && (!ready.empty() || !slices.empty()); }
};

/// The transfers of an engine and the pieces that they are cut into. Knows nothing of rails but
/// how many bytes a piece may have.
class TransferTable {
 public:
  explicit TransferTable(EngineShared& shared) : shared_(shared) {}

  Result<Transfer*> begin(TransferOptions options);
  Transfer* find(TransferId id);
  /// The transfer, if it takes writes; else why not.
  Result<Transfer*> find_open(TransferId id);
  /// kResourceExhausted unless so many more slices fit.
  Result<void> check_room(uint64_t slices) const;
  void submit(Transfer& transfer, const Slice& slice);

  /// Where the next piece goes; null when there is none or the transfer is paused.
  const Target* next_target(const Transfer& transfer) const;
  /// The next piece of at most this many bytes. None when the slice's last part must wait.
  std::optional<Piece> take_piece(Transfer& transfer, uint64_t bytes_max);
  /// The piece was not posted after all, or is to be posted again.
  void put_back(const Piece& piece);

  void delivered(const Piece& piece);
  /// The piece will not be posted any more, because its transfer failed or needs it no more.
  void drop(const Piece& piece);
  /// The piece surely will not land any more: without an immediate it is written again, with one
  /// the target must be asked first.
  void fenced(Piece piece, uint32_t lost_rail);
  /// What the target said about the doubtful pieces to it. They are delivered, or posted again; or
  /// the transfer fails.
  void resolve(Transfer& transfer, PeerId peer, const Result<ArrivalState>& state);
  /// Nothing more of it is posted. The first error counts.
  void fail(Transfer& transfer, Error error);
  /// Ends the transfer if nothing of it is left; then it is gone.
  void settle(Transfer& transfer);

  /// Transfers that may have something to post, in turn.
  std::vector<Transfer*>& active() { return active_; }
  void activate(Transfer& transfer);

  uint32_t transfers_count() const { return static_cast<uint32_t>(transfers_.size()); }
  uint32_t slices_count() const { return slices_count_; }

 private:
  static void use(Memory* memory, Target* target, int64_t change);
  uint32_t make_cut();
  void part_ended(uint32_t cut);
  void repeat(std::span<const Piece> pieces, uint64_t arrived_count);
  Error doubt_error(const Transfer& transfer, PeerId peer, std::string_view what) const;
  void forget_cut(uint32_t cut);

  EngineShared& shared_;
  uint64_t transfers_made_ = 0;
  uint32_t slices_count_ = 0;
  std::unordered_map<TransferId, std::unique_ptr<Transfer>> transfers_;
  std::vector<Transfer*> active_;
  std::vector<CutSlice> cuts_;
  std::vector<uint32_t> free_cuts_;  // places in cuts_
};

}  // namespace tandem::transfer
