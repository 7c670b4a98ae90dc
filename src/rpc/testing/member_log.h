#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rpc/membership.h"

namespace tandem::rpc {

/// One process of a test: its membership, and what it was told as lines of text.
struct MemberLog final : MembershipEvents {
  void on_joined(const Member& member) override { add("joined", member); }
  void on_changed(const Member& member) override { add("changed", member); }
  void on_left(const Member& member) override { add("left", member); }

  const Member* find(const std::string& id) const {
    const auto found = membership->members().find(id);
    return found == membership->members().end() ? nullptr : &found->second;
  }
  bool sees(const std::string& id, uint64_t generation) const {
    const Member* member = find(id);
    return member != nullptr && member->generation == generation;
  }

  std::vector<std::string> lines;
  std::unique_ptr<Membership> membership;  ///< last: it ends first

 private:
  void add(const std::string& what, const Member& member) {
    lines.push_back(what + " " + member.id + "#" + std::to_string(member.generation) +
                    (member.draining ? " draining" : ""));
  }
};

/// With a value in every field.
inline Member make_member(const std::string& id, uint64_t generation) {
  Member member;
  member.id = id;
  member.role = Role::kPrefill;
  member.generation = generation;
  member.address = "10.0.0.1:7000";
  member.data_addresses = {"rank-0", std::string("\0\xff", 2)};
  member.capacity = {.ranks = 2, .page_tokens = 32, .pages = uint64_t{1} << 40, .requests_max = 64};
  member.layout = std::string("bytes \0 \xfe", 9);
  return member;
}

}  // namespace tandem::rpc
