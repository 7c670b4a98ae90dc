#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transfer/engine/shared.h"

namespace tandem::transfer {

struct Peer;

/// One rail to one peer.
struct Path {
  enum class State {
    kOpen,
    kClosing,  ///< lost; posts are still ending
    kFencing,  ///< the peer is asked to close what this path could still write to
    kLost,
  };
  Peer* peer = nullptr;
  uint32_t rail = 0;
  RailPeerId id;
  State state = State::kOpen;
  Error error;  ///< why it was lost
  uint32_t posted_count = 0;
  uint64_t posted_bytes = 0;
  TimePoint moved_at;    ///< the last end of a post, or the first post after none
  bool is_full = false;  ///< in this progress()
};

struct Peer {
  PeerId id;
  std::string name;
  EngineAddress address;
  std::deque<Path> paths;        ///< rail i is path i
  uint64_t piece_bytes_max = 0;  ///< what one write to it may have
  bool is_closing = false;

  uint32_t open_count() const;
  /// The open path with the least under way that is not full and not `avoided_rail`; or null.
  Path* best_path(uint32_t avoided_rail = kRailsMax);
};

/// Who this engine talks to. Paths only ever go from open to lost; a peer that returns is added
/// anew.
class PeerTable {
 public:
  explicit PeerTable(EngineShared& shared) : shared_(shared) {}

  Result<PeerId> add(std::string name, const EngineAddress& address);
  Peer* find(PeerId id);
  Peer* find_by_address(const EngineAddress& address);
  /// Null when the path is forgotten.
  Path* path_of(uint32_t rail, RailPeerId id);

  /// The rail ends the path's posts. Nothing happens if it is lost already.
  void lose(Path& path, const Error& error);
  void lose_rail(uint32_t rail, const Error& error);
  /// True if any was.
  bool lose_stalled();
  /// What was under way counts as posted now.
  void forgive_stalls();
  void close(Peer& peer);
  /// All posts of the path have ended and nothing waits for it: forgets a closing peer at the last.
  void settle(Path& path);

  void posted(Path& path, uint64_t bytes);
  void ended(Path& path, uint64_t bytes);
  /// Writes and messages under way.
  uint64_t posted_count() const { return posted_count_; }
  /// The rail takes no more on this path until clear_full().
  void full(Path& path);
  void clear_full();

  /// What is said when no path is left: names the peer, its rails, and why the last was lost.
  Error lost_error(const Peer& peer) const;

 private:
  void forget_if_over(Peer& peer);

  EngineShared& shared_;
  uint64_t peers_made_ = 0;
  uint64_t posted_count_ = 0;
  std::unordered_map<PeerId, std::unique_ptr<Peer>> peers_;
  std::vector<std::unordered_map<uint32_t, Path*>> paths_{kRailsMax};  // by rail and RailPeerId
  std::vector<Path*> full_;
};

}  // namespace tandem::transfer
