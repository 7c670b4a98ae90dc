#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_callback.h>

#include <mutex>
#include <utility>

#include "rpc/grpc/stream.h"

namespace tandem::rpc {

/// The side that calls.
template <typename Out, typename In>
class ClientStream final : public QueuedStream<grpc::ClientBidiReactor<Out, In>, Out, In> {
 public:
  using QueuedStream<grpc::ClientBidiReactor<Out, In>, Out, In>::QueuedStream;

  grpc::ClientContext& context() { return context_; }

  /// After the call was prepared with this object as its reactor.
  void start() {
    const std::lock_guard lock(this->mutex_);
    // Until the hold is removed, gRPC does not end the call, so that operations may be started.
    this->AddHold();
    this->StartRead(&this->incoming_);
    this->StartCall();
  }

  void end(const grpc::Status&) override {
    const std::lock_guard lock(this->mutex_);
    context_.TryCancel();
    release();
  }

  void OnDone(const grpc::Status& status) override { this->mailbox_.done(this->id_, status); }

 private:
  void on_last_read() override { release(); }
  void release() {
    if (!std::exchange(this->ended_, true)) this->RemoveHold();
  }

  grpc::ClientContext context_;
};

}  // namespace tandem::rpc
