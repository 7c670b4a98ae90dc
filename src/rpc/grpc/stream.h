#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "rpc/grpc/mailbox.h"

namespace tandem::rpc {

struct StreamLimits {
  size_t write_messages_max = 16;  ///< waiting to be sent
  size_t write_bytes_max = 1 << 20;
  size_t read_messages_max = 16;  ///< read, not taken: more is left to the sender
  size_t read_bytes_max = 1 << 20;
};

/// One bidirectional call of gRPC as its owner sees it: two bounded queues. gRPC allows one read
/// and one write at a time and reports their ends on its own threads.
template <typename Out, typename In>
class Stream {
 public:
  virtual ~Stream() = default;
  /// False when the queue is full. What is written after the end is dropped.
  virtual bool write(Out message) = 0;
  /// What has arrived since the last time.
  virtual std::vector<In> take() = 0;
  /// Ends the call, with what is queued; word of it still comes to the mailbox.
  virtual void end(const grpc::Status& status) = 0;
  virtual size_t queued_messages() = 0;
  virtual size_t queued_bytes() = 0;
};

/// What both sides of a call have in common. `Reactor` is gRPC's class for the side; its methods
/// are called under `mutex_`, which is safe because gRPC never calls back from within them.
template <typename Reactor, typename Out, typename In>
class QueuedStream : public Reactor, public Stream<Out, In> {
 public:
  QueuedStream(Mailbox& mailbox, const StreamLimits& limits)
      : mailbox_(mailbox), id_(mailbox.begin()), limits_(limits) {}

  StreamId id() const { return id_; }

  bool write(Out message) override {
    const std::lock_guard lock(mutex_);
    if (ended_) return true;
    if (writes_.size() >= limits_.write_messages_max || write_bytes_ >= limits_.write_bytes_max) {
      return false;
    }
    write_bytes_ += message.ByteSizeLong();
    writes_.push_back(std::move(message));
    if (writes_.size() == 1) this->StartWrite(&writes_.front());
    return true;
  }

  std::vector<In> take() override {
    const std::lock_guard lock(mutex_);
    read_bytes_ = 0;
    if (std::exchange(reading_waits_, false) && !ended_) this->StartRead(&incoming_);
    return std::exchange(reads_, {});
  }

  size_t queued_messages() override {
    const std::lock_guard lock(mutex_);
    return writes_.size();
  }
  size_t queued_bytes() override {
    const std::lock_guard lock(mutex_);
    return write_bytes_;
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    write_bytes_ -= writes_.front().ByteSizeLong();
    writes_.pop_front();
    // After a failure gRPC ends the call by itself; the reading side reports it.
    if (ok && !ended_ && !writes_.empty()) this->StartWrite(&writes_.front());
  }

  void OnReadDone(bool ok) override {
    {
      const std::lock_guard lock(mutex_);
      if (!ok) {
        on_last_read();
      } else {
        read_bytes_ += incoming_.ByteSizeLong();
        reads_.push_back(std::move(incoming_));
        incoming_ = In();
        reading_waits_ =
            reads_.size() >= limits_.read_messages_max || read_bytes_ >= limits_.read_bytes_max;
        if (!reading_waits_ && !ended_) this->StartRead(&incoming_);
      }
      // Within the lock: word that the call is done must not come first.
      mailbox_.news(id_);
    }
  }

 protected:
  /// Nothing more comes from the other side. Under `mutex_`.
  virtual void on_last_read() = 0;
  bool is_writing() const { return !writes_.empty(); }

  Mailbox& mailbox_;
  const StreamId id_;
  std::mutex mutex_;
  bool ended_ = false;  ///< no operation may be started any more
  In incoming_;         ///< what gRPC is reading into

 private:
  const StreamLimits limits_;
  std::deque<Out> writes_;  ///< the first is being sent
  size_t write_bytes_ = 0;
  std::vector<In> reads_;
  size_t read_bytes_ = 0;
  bool reading_waits_ = false;  ///< for take()
};

}  // namespace tandem::rpc
