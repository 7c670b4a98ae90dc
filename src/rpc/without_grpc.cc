// What builds without gRPC have in the place of rpc/grpc.

#include "rpc/etcd_membership.h"
#include "rpc/grpc_channel.h"

namespace tandem::rpc {
namespace {

Error absent() {
  return make_error(Code::kUnimplemented, "this build has no gRPC");
}

}  // namespace

Result<Credentials> read_credentials(const CredentialFiles&) {
  return absent();
}

Result<GrpcChannel> open_grpc_channel(const GrpcChannelOptions&, io::Executor&, ChannelEvents&) {
  return absent();
}

Result<std::unique_ptr<Membership>> open_etcd_membership(const EtcdOptions&, io::Executor&,
                                                         MembershipEvents&) {
  return absent();
}

}  // namespace tandem::rpc
