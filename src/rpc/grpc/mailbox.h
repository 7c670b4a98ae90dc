#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/strong_id.h"
#include "io/executor.h"

namespace tandem::rpc {

/// A call of gRPC, as its mailbox numbers it.
using StreamId = StrongId<struct StreamTag, uint64_t>;

/// Where gRPC's threads leave word for the owner of some calls: which of them have news, and which
/// are done. A call that is done is touched by gRPC no more and may be destroyed.
///
/// Outlives all its calls: its owner ends them, then waits with wait_until_done().
class Mailbox {
 public:
  Mailbox(io::Executor& executor, io::Task& owner) : executor_(executor), owner_(owner) {}

  // Any thread.

  StreamId begin() {
    const std::lock_guard lock(mutex_);
    live_ += 1;
    return StreamId{++ids_made_};
  }
  size_t live() {
    const std::lock_guard lock(mutex_);
    return live_;
  }
  void news(StreamId id) {
    const std::lock_guard lock(mutex_);
    if (deaf_) return;
    news_.insert(id);
    executor_.wake(owner_);
  }
  /// The caller touches nothing of the call after this.
  void done(StreamId id, grpc::Status status) {
    const std::lock_guard lock(mutex_);
    live_ -= 1;
    // Under the lock, as wait_until_done() may otherwise return before this has finished.
    all_done_.notify_all();
    if (deaf_) return;
    done_.emplace_back(id, std::move(status));
    executor_.wake(owner_);
  }

  // The owner's thread.

  std::set<StreamId> take_news() {
    const std::lock_guard lock(mutex_);
    return std::exchange(news_, {});
  }
  std::vector<std::pair<StreamId, grpc::Status>> take_done() {
    const std::lock_guard lock(mutex_);
    return std::exchange(done_, {});
  }
  /// After the owner has ended all calls. It is not woken any more.
  void wait_until_done() {
    std::unique_lock lock(mutex_);
    deaf_ = true;
    all_done_.wait(lock, [this] { return live_ == 0; });
  }

 private:
  io::Executor& executor_;
  io::Task& owner_;
  std::mutex mutex_;
  std::condition_variable all_done_;
  uint64_t ids_made_ = 0;
  size_t live_ = 0;
  bool deaf_ = false;
  std::set<StreamId> news_;
  std::vector<std::pair<StreamId, grpc::Status>> done_;
};

}  // namespace tandem::rpc
