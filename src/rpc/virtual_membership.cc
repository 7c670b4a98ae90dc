#include "rpc/virtual_membership.h"

#include <optional>
#include <utility>

#include "rpc/member_table.h"

namespace tandem::rpc {

class VirtualMember final : public Membership {
 public:
  VirtualMember(VirtualRegistry& registry, uint64_t number, std::string process,
                MembershipEvents& events)
      : registry_(registry), number_(number), process_(std::move(process)), table_(events) {
    registry_.processes_.emplace(number_, this);
    registry_.tell(*this);
  }
  ~VirtualMember() override {
    registry_.processes_.erase(number_);
    if (self_) registry_.start_lease(*this, self_->id);
  }

  Result<void> announce(Member self) override {
    TANDEM_TRY(check_member(self));
    if (self_ && self_->id != self.id) {
      return make_error(Code::kFailedPrecondition, "announced as \"" + self_->id + "\" already");
    }
    self_ = std::move(self);
    announce_again();
    return {};
  }
  void withdraw() override {
    if (!self_) return;
    const auto entry = registry_.entries_.find(self_->id);
    const bool own = entry != registry_.entries_.end() && entry->second.owner == this;
    // Cut off, it can only stop renewing the lease.
    if (own && registry_.is_reachable(process_)) registry_.remove(self_->id);
    self_.reset();
  }
  const std::map<std::string, Member>& members() const override { return table_.members(); }
  MembershipStatus status() const override {
    MembershipStatus status;
    status.reachable = synced_;
    status.snapshots = snapshots_;
    const auto entry = self_ ? table_.members().find(self_->id) : table_.members().end();
    status.announced =
        entry != table_.members().end() && entry->second.generation == self_->generation;
    if (!status.reachable) {
      status.trouble = "the registry is out of reach";
    } else if (self_ && !status.announced) {
      status.trouble = trouble_.empty() ? "not listed yet" : trouble_;
    }
    return status;
  }

  // For the registry:
  const std::string& process() const { return process_; }
  uint64_t number() const { return number_; }
  void cut_off() {
    synced_ = false;
    if (self_) registry_.start_lease(*this, self_->id);
  }
  void sync(const std::map<std::string, Member>& members) {
    synced_ = true;
    snapshots_ += 1;
    table_.replace(members);
    announce_again();
  }

 private:
  void announce_again() {
    if (!self_ || !registry_.is_reachable(process_)) return;
    const auto put = registry_.put(*this, *self_);
    trouble_ = put.ok() ? "" : put.error().what;
  }

  VirtualRegistry& registry_;
  const uint64_t number_;
  const std::string process_;
  MemberTable table_;
  std::optional<Member> self_;
  bool synced_ = false;
  uint64_t snapshots_ = 0;
  std::string trouble_;
};

std::unique_ptr<Membership> VirtualRegistry::open(const std::string& process,
                                                  MembershipEvents& events) {
  return std::make_unique<VirtualMember>(*this, ++members_made_, process, events);
}

void VirtualRegistry::set_reachable(const std::string& process, bool reachable) {
  if (reachable) {
    unreachable_.erase(process);
  } else {
    unreachable_.insert(process);
  }
  for (const auto& [number, member] : processes_) {
    if (member->process() != process) continue;
    if (reachable) {
      tell(*member);
    } else {
      member->cut_off();
    }
  }
}

Result<void> VirtualRegistry::put(VirtualMember& owner, Member member) {
  const auto found = entries_.find(member.id);
  if (found != entries_.end()) {
    Entry& entry = found->second;
    if (entry.member.generation > member.generation) {
      return make_error(Code::kFailedPrecondition,
                        "\"" + member.id + "\" is listed by a newer process, of generation " +
                            std::to_string(entry.member.generation));
    }
    timers_.cancel(entry.lease_end);
    entry.owner = &owner;
    const bool same_life = entry.member.generation == member.generation;
    member.registration = same_life ? entry.member.registration : ++registrations_;
    if (entry.member == member) return {};
    entry.member = std::move(member);
  } else {
    member.registration = ++registrations_;
    const std::string id = member.id;
    entries_.emplace(id, Entry{std::move(member), &owner, {}});
  }
  tell_all();
  return {};
}

void VirtualRegistry::remove(const std::string& id) {
  const auto found = entries_.find(id);
  timers_.cancel(found->second.lease_end);
  entries_.erase(found);
  tell_all();
}

void VirtualRegistry::start_lease(const VirtualMember& owner, const std::string& id) {
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.owner != &owner) return;
  found->second.owner = nullptr;
  timers_.cancel(found->second.lease_end);
  found->second.lease_end = timers_.after(lease_, [this, id] { remove(id); });
}

void VirtualRegistry::tell_all() {
  for (const auto& [number, member] : processes_) tell(*member);
}

void VirtualRegistry::tell(VirtualMember& member) {
  const std::chrono::microseconds delay(static_cast<int64_t>(random_() % 5'000));
  timers_.after(delay, [this, number = member.number()] {
    const auto found = processes_.find(number);
    if (found == processes_.end() || !is_reachable(found->second->process())) return;
    std::map<std::string, Member> members;
    for (const auto& [id, entry] : entries_) members.emplace(id, entry.member);
    found->second->sync(members);
  });
}

}  // namespace tandem::rpc
