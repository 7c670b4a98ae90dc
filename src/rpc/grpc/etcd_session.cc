#include "rpc/grpc/etcd_session.h"

#include <grpcpp/grpcpp.h>

#include <map>
#include <utility>

#include "rpc/grpc/client_stream.h"
#include "rpc/grpc/credentials.h"
#include "rpc/grpc/etcd.grpc.pb.h"
#include "rpc/grpc/mailbox.h"
#include "rpc/grpc/status.h"

namespace tandem::rpc {
namespace {

namespace etcd = etcdserverpb;

// A list of many workers with long layouts comes as one message.
constexpr int kResponseBytesMax = 64 << 20;

struct PendingCall {
  virtual ~PendingCall() = default;
  virtual void finish(const grpc::Status& status) = 0;
  grpc::ClientContext context;
};

template <typename Request, typename Response>
struct TypedCall final : PendingCall {
  void finish(const grpc::Status& status) override {
    if (status.ok()) {
      done(std::move(response));
    } else {
      done(error_of(status));
    }
  }
  Request request;
  Response response;
  EtcdSession::Done<Response> done;
};

class GrpcEtcdSession final : public EtcdSession, private io::Task {
 public:
  GrpcEtcdSession(const Options& options, io::Executor& executor, EtcdEvents& events)
      : options_(options), executor_(executor), events_(events), mailbox_(executor, *this) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kResponseBytesMax);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    const auto channel = grpc::CreateCustomChannel(
        options.endpoint, dialling_credentials(options.credentials), arguments);
    kv_ = etcd::KV::NewStub(channel);
    lease_ = etcd::Lease::NewStub(channel);
    watch_ = etcd::Watch::NewStub(channel);
  }

  ~GrpcEtcdSession() override {
    end();
    mailbox_.wait_until_done();
    executor_.forget(*this);
  }

  void range(etcd::RangeRequest request, Done<etcd::RangeResponse> done) override {
    call(&etcd::KV::Stub::async_interface::Range, *kv_, std::move(request), std::move(done));
  }
  void txn(etcd::TxnRequest request, Done<etcd::TxnResponse> done) override {
    call(&etcd::KV::Stub::async_interface::Txn, *kv_, std::move(request), std::move(done));
  }
  void grant(etcd::LeaseGrantRequest request, Done<etcd::LeaseGrantResponse> done) override {
    call(&etcd::Lease::Stub::async_interface::LeaseGrant, *lease_, std::move(request),
         std::move(done));
  }
  void revoke(etcd::LeaseRevokeRequest request, Done<etcd::LeaseRevokeResponse> done) override {
    call(&etcd::Lease::Stub::async_interface::LeaseRevoke, *lease_, std::move(request),
         std::move(done));
  }

  void watch(etcd::WatchCreateRequest request) override {
    if (const auto old = watches_.find(watch_id_); old != watches_.end()) old->second->end({});
    auto stream = std::make_unique<WatchStream>(mailbox_, StreamLimits{});
    WatchStream& started = *stream;
    watch_id_ = started.id();
    watches_.emplace(watch_id_, std::move(stream));
    watch_->async()->Watch(&started.context(), &started);
    started.start();
    etcd::WatchRequest message;
    *message.mutable_create_request() = std::move(request);
    started.write(std::move(message));
  }

  void renew(int64_t lease) override {
    if (!renewals_) {
      renewals_ = std::make_unique<LeaseStream>(mailbox_, StreamLimits{});
      lease_->async()->LeaseKeepAlive(&renewals_->context(), renewals_.get());
      renewals_->start();
    }
    etcd::LeaseKeepAliveRequest message;
    message.set_id(lease);
    // A full queue is an etcd that does not answer; the probe beside this notices that.
    (void)renewals_->write(std::move(message));
  }

  void end() override {
    if (std::exchange(ended_, true)) return;
    for (const auto& [id, call] : calls_) call->context.TryCancel();
    for (const auto& [id, stream] : watches_) stream->end({});
    if (renewals_) renewals_->end({});
  }
  bool is_done() override { return mailbox_.live() == 0; }

 private:
  using WatchStream = ClientStream<etcd::WatchRequest, etcd::WatchResponse>;
  using LeaseStream = ClientStream<etcd::LeaseKeepAliveRequest, etcd::LeaseKeepAliveResponse>;

  template <typename Interface, typename Stub, typename Request, typename Response>
  void call(void (Interface::*method)(grpc::ClientContext*, const Request*, Response*,
                                      std::function<void(grpc::Status)>),
            Stub& stub, Request request, Done<Response> done) {
    const StreamId id = mailbox_.begin();
    auto call = std::make_unique<TypedCall<Request, Response>>();
    call->request = std::move(request);
    call->done = std::move(done);
    call->context.set_deadline(std::chrono::system_clock::now() + options_.call_max);
    TypedCall<Request, Response>& started = *call;
    calls_.emplace(id, std::move(call));
    (stub.async()->*method)(
        &started.context, &started.request, &started.response,
        [&mailbox = mailbox_, id](grpc::Status status) { mailbox.done(id, std::move(status)); });
  }

  void run() override {
    for (const StreamId id : mailbox_.take_news()) hand_over(id);
    for (const auto& [id, status] : mailbox_.take_done()) finish(id, status);
  }

  void hand_over(StreamId id) {
    if (const auto watch = watches_.find(id); watch != watches_.end()) {
      for (const etcd::WatchResponse& response : watch->second->take()) {
        if (!ended_ && id == watch_id_) events_.on_watch(response);
      }
    } else if (renewals_ && renewals_->id() == id) {
      for (const etcd::LeaseKeepAliveResponse& response : renewals_->take()) {
        if (!ended_) events_.on_lease(response.id(), response.ttl() > 0);
      }
    }
  }

  void finish(StreamId id, const grpc::Status& status) {
    if (const auto found = calls_.find(id); found != calls_.end()) {
      const auto call = std::move(found->second);
      calls_.erase(found);
      if (!ended_) call->finish(status);
      return;
    }
    hand_over(id);
    const bool is_renewals = renewals_ && renewals_->id() == id;
    const bool is_wanted = is_renewals || id == watch_id_;
    watches_.erase(id);
    if (is_renewals) renewals_.reset();
    if (!ended_ && is_wanted) events_.on_session_lost(error_of(status));
  }

  const Options options_;
  io::Executor& executor_;
  EtcdEvents& events_;
  Mailbox mailbox_;
  std::unique_ptr<etcd::KV::Stub> kv_;
  std::unique_ptr<etcd::Lease::Stub> lease_;
  std::unique_ptr<etcd::Watch::Stub> watch_;
  std::map<StreamId, std::unique_ptr<PendingCall>> calls_;
  std::map<StreamId, std::unique_ptr<WatchStream>> watches_;  ///< with those that are ending
  StreamId watch_id_;                                         ///< of the one that counts
  std::unique_ptr<LeaseStream> renewals_;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<EtcdSession> EtcdSession::open(const Options& options, io::Executor& executor,
                                               EtcdEvents& events) {
  return std::make_unique<GrpcEtcdSession>(options, executor, events);
}

}  // namespace tandem::rpc
