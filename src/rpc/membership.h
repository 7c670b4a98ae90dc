#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace tandem::rpc {

enum class Role : uint8_t { kPrefill = 1, kDecode = 2 };
const char* role_name(Role role);

/// What a worker can hold, all its ranks together. 0 in a static list: known once it is asked.
struct Capacity {
  uint32_t ranks = 0;
  uint32_t page_tokens = 0;
  uint64_t pages = 0;
  uint32_t requests_max = 0;
  bool operator==(const Capacity&) const = default;
};

/// A worker, as it announces itself.
struct Member {
  std::string id;  ///< 1 to 128 of A-Z a-z 0-9 . _ -
  Role role = Role::kDecode;
  uint64_t generation = 0;  ///< of its process: each start a higher one; 0 in a static list
  /// Counts the times that a name came to be listed, in the whole cluster; set by the membership. A
  /// worker that was taken for dead and returns has a new one, also when its process went on.
  uint64_t registration = 0;
  std::string address;                      ///< of its channel, "host:port"
  std::vector<std::string> data_addresses;  ///< of its transfer engines, one per rank; at most 1024
  Capacity capacity;
  std::string layout;     ///< what must match at a hand-off, for the cluster layer; <= 64 KiB
  bool draining = false;  ///< finishes what it has, takes nothing new
  bool operator==(const Member&) const = default;
};

/// kInvalidArgument says which field is out of range.
Result<void> check_member(const Member& member);

/// Called on the owner's executor, never from within a call of the membership. The owner's own
/// entry is among the members.
class MembershipEvents {
 public:
  virtual ~MembershipEvents() = default;
  virtual void on_joined(const Member& member) = 0;
  /// Other fields than generation and registration changed.
  virtual void on_changed(const Member& member) = 0;
  /// Withdrawn, or not heard of for the time of its lease. Also before on_joined of its next life.
  /// Says nothing about work that is under way: connections know better who is alive.
  virtual void on_left(const Member& member) = 0;
};

struct MembershipStatus {
  bool reachable = false;        ///< the list is that of now; else the last one known
  bool announced = false;        ///< this worker is listed
  std::string trouble;           ///< what is wrong, and since when; empty while all is well
  uint64_t snapshots = 0;        ///< times that the list was read as a whole
  uint64_t ignored_entries = 0;  ///< listed, but not understood
};

/// Who belongs to the cluster: every process sees the same list, sooner or later. Whatever goes
/// wrong is retried by itself and said in status(); the last known list stays meanwhile.
///
/// Nothing blocks. One thread, the owner's. Destroying it is the death of its process: the entry
/// stays until the lease ends.
class Membership {
 public:
  virtual ~Membership() = default;
  /// Lists this worker from now on, again after a lease was lost. With the same id once more it
  /// changes the entry. Of two lives of one id the higher generation is listed.
  virtual Result<void> announce(Member self) = 0;
  /// Ends that; nothing happens when it was not announced.
  virtual void withdraw() = 0;
  virtual const std::map<std::string, Member>& members() const = 0;
  virtual MembershipStatus status() const = 0;
};

}  // namespace tandem::rpc
