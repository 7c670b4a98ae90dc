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
    run(count, [](void* context, int64_t index, int worker) {
          (*static_cast<Raw*>(context))(index, worker);
        }, const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Call = void (*)(void* context, int64_t index, int worker);
  void run(int64_t count, Call call, void* context);
  std::vector<std::jthread> workers_;
};

}  // namespace tandem::cpu
