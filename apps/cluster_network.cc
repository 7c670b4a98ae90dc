#include "apps/cluster_network.h"

#include <chrono>
#include <utility>

#include "apps/cluster_flags.h"
#include "rpc/etcd_membership.h"
#include "rpc/static_membership.h"

namespace tandem::apps {
namespace {

/// Of two starts on one host the later one has the higher number, unless its clock was set back.
uint64_t generation_now() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace

Result<std::unique_ptr<ClusterNetwork>> ClusterNetwork::open(const Options& options,
                                                             io::Executor& executor,
                                                             rpc::ChannelEvents& channel_events,
                                                             rpc::MembershipEvents& member_events) {
  std::unique_ptr<ClusterNetwork> network(new ClusterNetwork);
  network->generation_ = generation_now();
  const rpc::Credentials credentials = TANDEM_TRY(rpc::read_credentials(options.credentials));
  rpc::GrpcChannelOptions channel;
  channel.channel.self = {options.name, network->generation_};
  channel.channel.seed = network->generation_;
  channel.credentials = credentials;
  channel.listen_address = options.listen_address;
  network->channel_ = TANDEM_TRY(rpc::open_grpc_channel(channel, executor, channel_events)).channel;
  const Discovery discovery = TANDEM_TRY(parse_discovery(options.discovery));
  if (discovery.uses_etcd()) {
    rpc::EtcdOptions etcd;
    etcd.endpoints = discovery.etcd_endpoints;
    etcd.cluster = discovery.etcd_cluster;
    network->membership_ = TANDEM_TRY(rpc::open_etcd_membership(etcd, executor, member_events));
  } else {
    network->membership_ =
        TANDEM_TRY(rpc::make_static_membership(discovery.members, executor, member_events));
  }
  return network;
}

Result<void> ClusterNetwork::announce(rpc::Member self) {
  self_ = std::move(self);
  self_.generation = generation_;
  return membership_->announce(self_);
}

void ClusterNetwork::drain() {
  self_.draining = true;
  // An entry that cannot change now still leaves with the process.
  static_cast<void>(membership_->announce(self_));
}

}  // namespace tandem::apps
