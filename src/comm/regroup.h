#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "comm/connection.h"
#include "comm/group_health.h"
#include "io/shared_memory.h"
#include "io/socket.h"

namespace tandem::comm {

class SymmetricHeap;

/// A rank that is gone.
struct LostRank {
  int rank = 0;      ///< number at the start
  std::string name;  ///< "rank 3 of host b (process 4711)"
};

/// A group that goes on without some of its ranks. Ranks count anew from 0, in their old order.
struct Regrouped {
  SymmetricHeap* heap = nullptr;     ///< new, of all that go on; the old one is gone
  std::vector<int> ranks;            ///< the number that each had at the start
  std::vector<std::string> brought;  ///< what each told the others
  std::vector<LostRank> losses;      ///< since the start
};

/// The ranks of a group by their numbers at the start, and who of them is gone for good. A rank
/// that is gone never comes back, so what is known never gets wrong.
class Roster {
 public:
  /// Ranks n*i ... n*i + n-1, with n = inseparable_ranks, go on together or not at all.
  Roster(std::vector<RankPlace> places, int inseparable_ranks);

  int ranks_count() const { return static_cast<int>(places_.size()); }
  const RankPlace& place(int rank) const { return places_[static_cast<size_t>(rank)]; }
  std::string name(int rank) const;
  bool is_gone(int rank) const { return gone_[static_cast<size_t>(rank)]; }
  /// The rank does not go on, nor do those that cannot without it.
  void lose(int rank);
  /// What a wait of a group has found out; ranks of `health` have its numbers.
  void lose_all(const GroupHealth& health);
  /// Ascending.
  std::vector<int> survivors() const;
  std::vector<LostRank> losses() const;
  /// Why a rank that has lost one of those it cannot go on without must end.
  Error end_of(int rank) const;

 private:
  std::vector<RankPlace> places_;
  int inseparable_ranks_;
  std::vector<bool> gone_;
  std::vector<bool> left_alone_;  // gone because one of its own is
};

/// Where a rank can be found by those that hold the group's key, as long as it is in the group: a
/// socket of the host, whose end is the rank's.
Result<io::Listener> listen_for_survivors(const std::string& key, int rank);

struct ReunionOptions {
  std::string key;        ///< of the group, known to its members only
  int rank = 0;           ///< number at the start
  size_t heap_bytes = 0;  ///< of each rank
  std::string brings;     ///< told to all others
  std::chrono::milliseconds timeout{60'000};
};

/// Survivors that have met.
struct Reunion {
  std::vector<int> ranks;  ///< numbers at the start; the first is connected to all others
  std::vector<std::string> brought;
  std::vector<std::optional<Connection>> connections;  ///< as in Meeting, by new rank
  std::optional<io::SharedMemory> memory;              ///< their heaps; set
};

/// Brings the ranks of a group together that are left. The lowest one leads: everyone looks for
/// those below itself, in order, at their listeners; a listener that does not answer is a rank that
/// is gone, one that answers belongs to a rank that is waited for (it may be late). The leader
/// looks for all above itself in the same way, waits until each has come or is gone, and only then
/// says who goes on and hands out the memory of their heaps, zeroed. A rank that dies in between
/// makes it start over; one that dies later is a loss of the new group.
///
/// Adds what it learns to `roster`. kUnavailable when this rank is not to go on, with the reason;
/// kDeadlineExceeded, with names, when a rank neither comes nor ends.
Result<Reunion> meet_again(const ReunionOptions& options, io::Listener& listener, Roster& roster);

}  // namespace tandem::comm
