#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_callback.h>

#include <mutex>
#include <utility>

#include "rpc/grpc/stream.h"

namespace tandem::rpc {

/// The side that is called. Its end is told to the other as a status.
template <typename Out, typename In>
class ServerStream final : public QueuedStream<grpc::ServerBidiReactor<In, Out>, Out, In> {
 public:
  ServerStream(Mailbox& mailbox, const StreamLimits& limits, grpc::CallbackServerContext& context)
      : QueuedStream<grpc::ServerBidiReactor<In, Out>, Out, In>(mailbox, limits),
        context_(context) {}

  /// When its owner knows of it.
  void start() {
    const std::lock_guard lock(this->mutex_);
    if (!this->ended_) this->StartRead(&this->incoming_);
  }

  void end(const grpc::Status& status) override {
    const std::lock_guard lock(this->mutex_);
    if (this->ended_) return;
    // The status would wait behind a message that the other side may never take.
    if (this->is_writing()) context_.TryCancel();
    finish(status);
  }

  void OnCancel() override {
    const std::lock_guard lock(this->mutex_);
    finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the connection was lost or closed"));
  }

  void OnDone() override { this->mailbox_.done(this->id_, status_); }

 private:
  void on_last_read() override {
    finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the peer closed the connection"));
  }
  void finish(const grpc::Status& status) {
    if (std::exchange(this->ended_, true)) return;
    status_ = status;
    this->Finish(status);
  }

  grpc::CallbackServerContext& context_;  ///< gRPC's; lives until OnDone
  grpc::Status status_;
};

}  // namespace tandem::rpc
