#include "rpc/member_table.h"

#include <utility>
#include <vector>

namespace tandem::rpc {

void MemberTable::put(Member member) {
  const auto found = members_.find(member.id);
  if (found != members_.end()) {
    if (found->second == member) return;
    if (found->second.generation == member.generation &&
        found->second.registration == member.registration) {
      found->second = member;
      return events_.on_changed(member);
    }
    erase(member.id);
  }
  members_.emplace(member.id, member);
  events_.on_joined(member);
}

void MemberTable::erase(const std::string& id) {
  const auto found = members_.find(id);
  if (found == members_.end()) return;
  const Member member = std::move(found->second);
  members_.erase(found);
  events_.on_left(member);
}

void MemberTable::replace(std::map<std::string, Member> members) {
  std::vector<std::string> gone;
  for (const auto& [id, member] : members_) {
    if (!members.contains(id)) gone.push_back(id);
  }
  for (const std::string& id : gone) erase(id);
  for (auto& [id, member] : members) put(std::move(member));
}

}  // namespace tandem::rpc
