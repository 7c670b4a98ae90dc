#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "io/executor.h"
#include "rpc/grpc_channel.h"
#include "rpc/membership.h"

namespace tandem::apps {

/// A process's place in a cluster: its channel, and the list of members that it watches and, if it
/// is a worker, is on.
class ClusterNetwork {
 public:
  struct Options {
    std::string name;
    std::string listen_address;  ///< empty: nobody comes to it
    std::string discovery;       ///< parse_discovery
    rpc::CredentialFiles credentials;
  };
  /// The events come on the executor, which outlives this, as do the receivers.
  static Result<std::unique_ptr<ClusterNetwork>> open(const Options& options,
                                                      io::Executor& executor,
                                                      rpc::ChannelEvents& channel_events,
                                                      rpc::MembershipEvents& member_events);

  rpc::Channel& channel() { return *channel_; }
  const rpc::Membership& members() const { return *membership_; }
  uint64_t generation() const { return generation_; }

  /// Lists this process, whose generation is filled in.
  Result<void> announce(rpc::Member self);
  /// It finishes what it has and takes nothing new.
  void drain();
  void withdraw() { membership_->withdraw(); }

 private:
  ClusterNetwork() = default;

  uint64_t generation_ = 0;
  rpc::Member self_;
  std::unique_ptr<rpc::Channel> channel_;
  std::unique_ptr<rpc::Membership> membership_;
};

}  // namespace tandem::apps
