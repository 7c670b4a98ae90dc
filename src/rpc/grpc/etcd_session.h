#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "io/executor.h"
#include "rpc/grpc_channel.h"

namespace etcdserverpb {
class LeaseGrantRequest;
class LeaseGrantResponse;
class LeaseRevokeRequest;
class LeaseRevokeResponse;
class RangeRequest;
class RangeResponse;
class TxnRequest;
class TxnResponse;
class WatchCreateRequest;
class WatchResponse;
}  // namespace etcdserverpb

namespace tandem::rpc {

/// What comes from etcd unasked. On the owner's executor; may call the session, not destroy it.
class EtcdEvents {
 public:
  virtual ~EtcdEvents() = default;
  virtual void on_watch(const etcdserverpb::WatchResponse& response) = 0;
  /// The lease was renewed, or is lost.
  virtual void on_lease(int64_t lease, bool alive) = 0;
  /// A stream ended: nothing more will come.
  virtual void on_session_lost(const Error& error) = 0;
};

/// One connection to one etcd. One thread, the owner's. The destructor waits for gRPC's threads;
/// after end() and is_done() it need not.
class EtcdSession {
 public:
  template <typename Response>
  using Done = std::function<void(Result<Response>)>;

  struct Options {
    std::string endpoint;
    Credentials credentials;
    std::chrono::milliseconds call_max;
  };

  virtual ~EtcdSession() = default;
  static std::unique_ptr<EtcdSession> open(const Options& options, io::Executor& executor,
                                           EtcdEvents& events);

  virtual void range(etcdserverpb::RangeRequest request,
                     Done<etcdserverpb::RangeResponse> done) = 0;
  virtual void txn(etcdserverpb::TxnRequest request, Done<etcdserverpb::TxnResponse> done) = 0;
  virtual void grant(etcdserverpb::LeaseGrantRequest request,
                     Done<etcdserverpb::LeaseGrantResponse> done) = 0;
  virtual void revoke(etcdserverpb::LeaseRevokeRequest request,
                      Done<etcdserverpb::LeaseRevokeResponse> done) = 0;
  /// Replaces the watch before.
  virtual void watch(etcdserverpb::WatchCreateRequest request) = 0;
  virtual void renew(int64_t lease) = 0;

  /// No event and no answer follows.
  virtual void end() = 0;
  /// After end(): nothing of gRPC is left.
  virtual bool is_done() = 0;
};

}  // namespace tandem::rpc
