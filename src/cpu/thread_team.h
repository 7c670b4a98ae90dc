#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace tandem::cpu {

/// A fixed set of worker threads that run one parallel loop at a time for their owner thread.
/// Workers spin for some tens of microseconds between loops, then sleep: an idle team uses no CPU.
/// Which worker runs which index is not fixed, so a body must not let results depend on it.
class ThreadTeam {
 public:
  /// `threads_count` >= 1 includes the calling thread.
  explicit ThreadTeam(int threads_count);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int threads_count() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(index, worker) once for every index in [0, count), worker in [0, threads_count);
  /// returns when all are done. Allocates nothing.
  template <typename Body>
  void parallel_for(int64_t count, Body&& body) {
    using Raw = std::remove_reference_t<Body>;
    run(
        count,
        [](void* context, int64_t index, int worker) {
          (*static_cast<Raw*>(context))(index, worker);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Call = void (*)(void* context, int64_t index, int worker);
  void run(int64_t count, Call call, void* context);
  void work(int worker);
  void take_indices(int worker);

  // The loop in progress: written by the owner before `epoch_` moves, read by workers after.
  Call call_ = nullptr;
  void* context_ = nullptr;
  int64_t count_ = 0;
  alignas(64) std::atomic<int64_t> next_index_{0};
  alignas(64) std::atomic<int> workers_busy_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};  // one up per loop
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace tandem::cpu
