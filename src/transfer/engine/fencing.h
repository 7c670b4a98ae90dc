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
    PeerTable& peers;
    RegionTable& regions;
    Messenger& messenger;
  };
  Fencing(EngineShared& shared, const Parts& parts, EngineAddress own_address);

  /// Asks for the path's keys. The answer comes from take_answers().
  void start(Path& path, const std::vector<uint64_t>& keys);

  struct Answer {
    Path* path = nullptr;
    Result<void> result;  ///< Why it is not fenced.
  };
  /// Sends what is due and gives back what was decided.
  std::vector<Answer> take_answers();
  std::optional<TimePoint> next_deadline() const;

  void received(const FenceReply& reply);
  void received(const FenceRequest& request);
  /// One of the regions that somebody waits for may be closed now.
  void region_closed(uint32_t rail, uint64_t key);

 private:
  /// Of one path; several requests when its keys do not fit into one message.
  struct Asked {
    Path* path = nullptr;
    PeerId peer;
    std::unordered_map<uint64_t, Bytes> open_requests;  // by id
    TimePoint deadline;
    TimePoint retry_at;
    bool was_refused = false;
  };
  struct Served {
    FenceRequest request;
    std::set<uint64_t> open_keys;
  };
  std::optional<Result<void>> decide(Asked& asked);
  void reply(const FenceRequest& request, bool is_fenced);

  EngineShared& shared_;
  Parts parts_;
  const EngineAddress own_address_;
  uint64_t requests_made_ = 0;
  std::vector<Asked> asked_;
  std::vector<Served> served_;
};

}  // namespace tandem::transfer
