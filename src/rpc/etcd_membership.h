#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/executor.h"
#include "rpc/grpc_channel.h"
#include "rpc/membership.h"

namespace tandem::rpc {

struct EtcdOptions {
  std::vector<std::string> endpoints;  ///< "host:port" each; the next is tried when one fails
  std::string cluster = "default";     ///< clusters of different names share an etcd; as Member::id
  Credentials credentials;             ///< TLS towards etcd, without `secret`; empty: none
  /// How long a dead worker stays listed; at least 1 s. Three times as often it is renewed, and
  /// etcd asked for a sign of life.
  std::chrono::seconds lease{5};
  std::chrono::milliseconds call_max{2'000};   ///< an etcd that does not answer is out of reach
  std::chrono::milliseconds retry_first{100};  ///< then doubled
  std::chrono::milliseconds retry_max{2'000};
  size_t members_max = 1'024;
};

/// The membership over etcd v3. Entries are JSON under /tandem/CLUSTER/workers/ID, each with its
/// worker's lease. The list is read once, then followed; after an outage it goes on at the revision
/// that was seen last, and is read anew when etcd has compacted that away or is another etcd.
///
/// kInvalidArgument names an option that is out of range; an etcd that cannot be reached is none,
/// see status(). kUnimplemented in builds without gRPC.
Result<std::unique_ptr<Membership>> open_etcd_membership(const EtcdOptions& options,
                                                         io::Executor& executor,
                                                         MembershipEvents& events);

}  // namespace tandem::rpc
