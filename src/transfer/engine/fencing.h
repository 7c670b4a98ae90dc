#pragma once

#include <set>
#include <unordered_map>
#include <vector>

#include "transfer/engine/messenger.h"
#include "transfer/engine/region_table.h"

namespace tandem::transfer {

/// Makes sure that nothing lands any more through a lost path, by asking the peer to close the
/// registrations that the path wrote to, and does the same for peers that ask. Requests and replies
/// go over other rails; a request is repeated until it is answered, since closing twice is closing
/// once.
class Fencing {
 public:
  struct Parts {
    const ArrivalTable& arrivals;
    PeerTable& peers;
    RegionTable& regions;
    Messenger& messenger;
  };
  Fencing(EngineShared& shared, const Parts& parts, EngineAddress own_address);

  /// Asks for the path's keys. The answer comes from take_answers().
  void start(Path& path, const std::vector<uint64_t>& keys);
  /// Asks how many immediates the peer has counted, all that were delivered included. The key on
  /// that rail shows that we may ask; it was closed before.
  struct CountQuestion {
    TransferId transfer;
    PeerId peer;
    uint32_t rail = 0;
    uint64_t key = 0;
    uint32_t immediate = 0;
  };
  void ask_count(const CountQuestion& question);

  struct Answer {
    Path* path = nullptr;  ///< Null: of ask_count().
    TransferId transfer;
    PeerId peer;
    Result<ArrivalState> result;  ///< Or why it is not fenced, or not known.
  };
  /// Sends what is due and gives back what was decided.
  std::vector<Answer> take_answers();
  std::optional<TimePoint> next_deadline() const;

  void received(const FenceReply& reply);
  void received(const FenceRequest& request);
  /// One of the regions that somebody waits for may be closed now.
  void region_closed(uint32_t rail, uint64_t key);
  /// Around the poll of a rail; it was drained if it reported less than it might have.
  void poll_begins() { ++polls_count_; }
  void poll_ends(uint32_t rail, bool is_drained);

 private:
  /// One question; several requests when its keys do not fit into one message.
  struct Asked {
    Path* path = nullptr;
    TransferId transfer;
    PeerId peer;
    std::unordered_map<uint64_t, Bytes> open_requests;  // by id
    TimePoint deadline;
    TimePoint retry_at;
    bool was_refused = false;
    ArrivalState arrival;
  };
  /// Waits until the keys are closed, then until all rails are drained if it asks for a count.
  struct Served {
    FenceRequest request;
    std::set<uint64_t> open_keys;
    std::set<uint32_t> undrained_rails;
    uint64_t closed_in_poll = 0;  // only later polls count for draining
    bool is_over() const { return open_keys.empty() && undrained_rails.empty(); }
  };
  Asked make_asked(PeerId peer) const;
  std::optional<Result<ArrivalState>> decide(Asked& asked);
  void reply_to_those_over();
  void reply(const FenceRequest& request, bool is_fenced);

  EngineShared& shared_;
  Parts parts_;
  const EngineAddress own_address_;
  uint64_t requests_made_ = 0;
  uint64_t polls_count_ = 0;
  std::vector<Asked> asked_;
  std::vector<Served> served_;
};

}  // namespace tandem::transfer
