#include "server/worker_pool.h"

#include <pthread.h>

#include <utility>

namespace tandem::server {

WorkerPool::WorkerPool(Options options) : options_(options) {
  for (int i = 0; i < options_.threads_count; ++i) {
    threads_.emplace_back([this] { work(); });
    pthread_setname_np(threads_.back().native_handle(), "tandem-text");
  }
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkerPool::submit(std::unique_ptr<http::Task> task) {
  {
    const std::lock_guard lock(mutex_);
    if (queue_.size() >= options_.queue_tasks_max) return false;
    queue_.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

void WorkerPool::work() {
  for (;;) {
    std::unique_ptr<http::Task> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task->run();
  }
}

}  // namespace tandem::server
