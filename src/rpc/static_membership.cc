#include "rpc/static_membership.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "rpc/member_table.h"

namespace tandem::rpc {
namespace {

class StaticMembership final : public Membership, private io::Task {
 public:
  StaticMembership(std::map<std::string, Member> members, io::Executor& executor,
                   MembershipEvents& events)
      : listed_(std::move(members)), executor_(executor), table_(events) {
    executor_.wake(*this);
  }
  ~StaticMembership() override { executor_.forget(*this); }

  Result<void> announce(Member self) override { return check_member(self); }
  void withdraw() override {}
  const std::map<std::string, Member>& members() const override { return table_.members(); }
  MembershipStatus status() const override { return {.reachable = true, .snapshots = 1}; }

 private:
  void run() override { table_.replace(std::move(listed_)); }

  std::map<std::string, Member> listed_;
  io::Executor& executor_;
  MemberTable table_;
};

Result<Member> parse_member(std::string_view text) {
  const size_t colon = text.find(':');
  const size_t at = text.find('@', colon == std::string_view::npos ? 0 : colon);
  const std::string_view role = text.substr(0, colon);
  if (at == std::string_view::npos || (role != "prefill" && role != "decode")) {
    return make_error(Code::kInvalidArgument,
                      "cannot read the worker \"" + std::string(text) +
                          "\"; write e.g. prefill:p0@10.0.0.1:7000 or decode:d0@host:7000");
  }
  Member member;
  member.id = text.substr(colon + 1, at - colon - 1);
  member.role = role == "prefill" ? Role::kPrefill : Role::kDecode;
  member.address = text.substr(at + 1);
  TANDEM_TRY(check_member(member));
  return member;
}

}  // namespace

Result<std::vector<Member>> parse_members(std::string_view text) {
  std::vector<Member> members;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    members.push_back(TANDEM_TRY(parse_member(text.substr(0, comma))));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return members;
}

Result<std::unique_ptr<Membership>> make_static_membership(std::vector<Member> members,
                                                           io::Executor& executor,
                                                           MembershipEvents& events) {
  std::map<std::string, Member> by_id;
  for (Member& member : members) {
    TANDEM_TRY(check_member(member));
    const std::string id = member.id;
    if (!by_id.emplace(id, std::move(member)).second) {
      return make_error(Code::kInvalidArgument, "worker \"" + id + "\" is listed twice");
    }
  }
  return std::unique_ptr<Membership>(
      std::make_unique<StaticMembership>(std::move(by_id), executor, events));
}

}  // namespace tandem::rpc
