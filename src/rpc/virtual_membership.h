#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "io/executor.h"
#include "io/timers.h"
#include "rpc/membership.h"

namespace tandem::rpc {

class VirtualMember;

/// The store of a cluster's members for tests and the simulator, with leases and outages. News
/// reach each process after a delay that depends on the seed. One thread; outlives its memberships.
class VirtualRegistry {
 public:
  VirtualRegistry(io::Executor& executor, uint64_t seed, std::chrono::nanoseconds lease)
      : timers_(executor), random_(seed), lease_(lease) {}

  /// The membership of one process. `process` is its name for set_reachable().
  std::unique_ptr<Membership> open(const std::string& process, MembershipEvents& events);

  /// Cuts a process off from the store: it sees nothing new, and its lease runs out.
  void set_reachable(const std::string& process, bool reachable);

 private:
  friend class VirtualMember;

  struct Entry {
    Member member;
    VirtualMember* owner = nullptr;  ///< nothing: its process is gone, the lease runs
    io::TimerId lease_end;           ///< while it runs
  };

  Result<void> put(VirtualMember& owner, Member member);
  void remove(const std::string& id);
  /// From here on the owner does not renew the lease. Nothing when another has taken the id.
  void start_lease(const VirtualMember& owner, const std::string& id);
  void tell_all();
  void tell(VirtualMember& member);
  bool is_reachable(const std::string& process) const { return !unreachable_.contains(process); }

  io::Timers timers_;
  std::mt19937_64 random_;
  const std::chrono::nanoseconds lease_;
  uint64_t registrations_ = 0;
  uint64_t members_made_ = 0;
  std::map<std::string, Entry> entries_;
  std::map<uint64_t, VirtualMember*> processes_;
  std::set<std::string> unreachable_;
};

}  // namespace tandem::rpc
