#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

#include "server/http/http.h"
#include "server/worker_pool.h"

namespace tandem::server {

/// Runs work on the pool and brings its result back to the I/O thread, where whoever asked may be
/// gone by then. All but the work itself happens on the I/O thread.
class Offload {
 public:
  Offload(WorkerPool& pool, http::Loop& loop) : pool_(pool), loop_(loop) {}

  /// A result that is waited for. Destroying it means that nobody waits any more.
  class Pending {
   public:
    virtual ~Pending() { offload_.waiting_.erase(id_); }
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;

   protected:
    Pending(Offload& offload, uint64_t id) : offload_(offload), id_(id) {
      offload_.waiting_.emplace(id, this);
    }

   private:
    Offload& offload_;
    const uint64_t id_;
  };

  /// Calls `done` with what `work` returned. Nothing when the pool's queue is full. `work` must
  /// refer only to what outlives the pool's threads; `done` may destroy the Pending.
  template <typename T>
  std::unique_ptr<Pending> start(std::function<T()> work, std::function<void(T)> done) {
    const uint64_t id = ++ids_made_;
    auto job = std::make_unique<Job<T>>(*this, id, std::move(work));
    auto pending = std::make_unique<Waiting<T>>(*this, id, std::move(done));
    if (!pool_.submit(std::move(job))) return nullptr;
    return pending;
  }

 private:
  template <typename T>
  struct Waiting final : Pending {
    Waiting(Offload& offload, uint64_t id, std::function<void(T)> done)
        : Pending(offload, id), done(std::move(done)) {}
    std::function<void(T)> done;
  };

  template <typename T>
  struct Delivery final : http::Task {
    Delivery(Offload& offload, uint64_t id, T result)
        : offload(offload), id(id), result(std::move(result)) {}
    void run() override {
      const auto found = offload.waiting_.find(id);
      if (found == offload.waiting_.end()) return;
      // Moved out first, because it may destroy the Pending that holds it.
      const auto done = std::move(static_cast<Waiting<T>*>(found->second)->done);
      done(std::move(result));
    }
    Offload& offload;
    const uint64_t id;
    T result;
  };

  template <typename T>
  struct Job final : http::Task {
    Job(Offload& offload, uint64_t id, std::function<T()> work)
        : offload(offload), id(id), work(std::move(work)) {}
    void run() override { offload.loop_.post(std::make_unique<Delivery<T>>(offload, id, work())); }
    Offload& offload;
    const uint64_t id;
    const std::function<T()> work;
  };

  WorkerPool& pool_;
  http::Loop& loop_;
  std::unordered_map<uint64_t, Pending*> waiting_;
  uint64_t ids_made_ = 0;
};

}  // namespace tandem::server
