#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "io/executor.h"

namespace tandem::io {

/// Calls that other threads hand to an executor's thread, made there in the order in which they
/// came. Unbounded: who posts bounds what is under way (requests, hand-offs, layers of a step).
class PostBox final : public Task {
 public:
  explicit PostBox(Executor& executor) : executor_(executor) {}
  /// Owner's thread, with nobody left who posts. What waits is not called.
  ~PostBox() override { executor_.forget(*this); }
  PostBox(const PostBox&) = delete;
  PostBox& operator=(const PostBox&) = delete;

  /// Any thread, the owner's included; `call` runs later, never within.
  void post(std::function<void()> call);
  void run() override;

 private:
  Executor& executor_;
  std::vector<std::function<void()>> running_;  // owner's thread
  std::mutex mutex_;
  std::vector<std::function<void()>> calls_;  // guarded by mutex_
};

}  // namespace tandem::io
