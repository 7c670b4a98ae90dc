#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/executor.h"
#include "rpc/membership.h"

namespace tandem::rpc {

/// Reads "prefill:p0@10.0.0.1:7000,decode:d0@10.0.0.2:7000": role, id and address of each worker.
/// What a list does not say (capacity, layout, generation) is asked over the channel.
Result<std::vector<Member>> parse_members(std::string_view text);

/// A list that never changes. All of it joins soon after the start; announce() and withdraw() do
/// nothing, as others know of a worker by their own lists. kInvalidArgument names an id that is
/// listed twice.
Result<std::unique_ptr<Membership>> make_static_membership(std::vector<Member> members,
                                                           io::Executor& executor,
                                                           MembershipEvents& events);

}  // namespace tandem::rpc
