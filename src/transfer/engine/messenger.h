#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "transfer/engine/peer_table.h"

namespace tandem::transfer {

/// Sends messages over whichever path of a peer is open and has the least to do. One that surely
/// was not sent goes over another path; one with unknown fate fails, because it could arrive twice.
class Messenger {
 public:
  using OnEnd = std::function<void(const Result<void>&)>;
  struct Outgoing {
    PeerId peer;
    Bytes bytes;
    OnEnd on_end;  // or null
    uint32_t avoided_rail = kRailsMax;
  };

  Messenger(EngineShared& shared, PeerTable& peers) : shared_(shared), peers_(peers) {}

  void send(Outgoing message) { waiting_.push_back(std::move(message)); }
  /// Not yet ended.
  size_t messages_count() const { return waiting_.size() + posted_.size() - free_.size(); }
  bool is_waiting() const { return !waiting_.empty(); }
  /// True if anything was posted or given up.
  bool post_all();
  void ended(uint32_t post, RailOutcome outcome, const Error& error);

 private:
  struct Posted {
    Outgoing message;
    Path* path = nullptr;
  };
  void end(Outgoing& message, Result<void> result);

  EngineShared& shared_;
  PeerTable& peers_;
  std::deque<Outgoing> waiting_;
  std::vector<Posted> posted_;
  std::vector<uint32_t> free_;  // places in posted_
};

/// Tokens of posts: the highest bit tells messages from writes.
inline constexpr uint64_t kMessageToken = uint64_t{1} << 63;

}  // namespace tandem::transfer
