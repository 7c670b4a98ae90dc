#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "transfer/engine/fencing.h"
#include "transfer/engine/peer_table.h"
#include "transfer/engine/transfer_table.h"

namespace tandem::transfer {

/// Posts the pieces of all transfers on the paths of their targets, and decides what becomes of
/// those that were not delivered.
class Writer {
 public:
  struct Parts {
    PeerTable& peers;
    TransferTable& transfers;
  };
  Writer(EngineShared& shared, const Parts& parts)
      : shared_(shared), parts_(parts), rail_posts_(shared.rails.size()) {}

  /// True if anything was posted or failed.
  bool post_all();
  void ended(uint32_t post, RailOutcome outcome, const Error& error);

  /// Keys that a lost path wrote to with unknown fate; empty when nothing is held for it.
  std::vector<uint64_t> keys_in_doubt(const Path& path) const;
  /// Nothing can land through the lost path any more, or that cannot be had.
  void fenced(const Path& path, const Result<ArrivalState>& result);
  /// What peers are to be asked about immediates of unknown fate.
  std::vector<Fencing::CountQuestion> take_questions() { return std::exchange(questions_, {}); }
  void answered(TransferId transfer, PeerId peer, const Result<ArrivalState>& state);

 private:
  struct Posted {
    Piece piece;
    Path* path = nullptr;
  };
  enum class Step { kPosted, kNothing, kFailed };
  /// Posts up to a turn's worth of pieces; false if none.
  bool take_turn(Transfer& transfer);
  Step post_one(Transfer& transfer);
  Path* choose_path(Peer& peer);
  void forgo(const Piece& piece, const Path& path, const std::optional<Error>& unfenced);
  void settle(Transfer& transfer);

  EngineShared& shared_;
  Parts parts_;
  std::vector<Posted> posted_;
  std::vector<uint32_t> free_;        // places in posted_
  std::vector<uint32_t> rail_posts_;  // writes under way, by rail
  std::unordered_map<const Path*, std::vector<Piece>> held_;
  std::vector<Fencing::CountQuestion> questions_;
  std::vector<Transfer*> round_;
  uint32_t steps_left_ = 0;
};

}  // namespace tandem::transfer
