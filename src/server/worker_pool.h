#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "server/http/http.h"

namespace tandem::server {

/// A few threads for work that would hold up the I/O thread: parsing, rendering and tokenizing.
/// The destructor finishes the task in progress of each thread and drops the others.
class WorkerPool {
 public:
  struct Options {
    int threads_count = 2;
    size_t queue_tasks_max = 1024;
  };
  explicit WorkerPool(Options options);
  ~WorkerPool();

  /// False when the queue is full; the task is dropped then. From any thread.
  bool submit(std::unique_ptr<http::Task> task);

 private:
  void work();

  const Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<http::Task>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tandem::server
