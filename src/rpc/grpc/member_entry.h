#pragma once

#include <string>

#include "base/result.h"
#include "rpc/membership.h"

namespace tandem::rpc {

/// The entry of a member in the registry, and back. What is read comes from others: kDataLoss says
/// what is wrong with it. `registration` is not part of it.
std::string member_text(const Member& member);
Result<Member> parse_member_text(const std::string& text);

}  // namespace tandem::rpc
