#pragma once

#include <map>
#include <string>

#include "rpc/membership.h"

namespace tandem::rpc {

/// The list of members that one process knows; tells what changes. Events may read the list.
class MemberTable {
 public:
  explicit MemberTable(MembershipEvents& events) : events_(events) {}

  /// A new generation or registration is a leave and a join.
  void put(Member member);
  void erase(const std::string& id);
  /// Becomes this list, whatever happened in between.
  void replace(std::map<std::string, Member> members);

  const std::map<std::string, Member>& members() const { return members_; }

 private:
  MembershipEvents& events_;
  std::map<std::string, Member> members_;
};

}  // namespace tandem::rpc
