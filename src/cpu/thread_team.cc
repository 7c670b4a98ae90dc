#include "cpu/thread_team.h"

#include <pthread.h>

#include <chrono>
#include <string>

#include "base/check.h"
#include "base/spin_pause.h"

namespace tandem::cpu {
namespace {

/// Long enough to bridge the gap between two ops of a step, short enough not to be seen as load.
constexpr std::chrono::microseconds kSpin{50};
constexpr int kSpinsPerClockRead = 64;

/// Spins until `done` or the time is over; true when done.
template <typename Done>
bool spin_until(Done done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kSpinsPerClockRead; ++i) {
      if (done()) return true;
      spin_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

}  // namespace

ThreadTeam::ThreadTeam(int threads_count) {
  TANDEM_CHECK(threads_count >= 1, "a team includes its caller");
  for (int worker = 1; worker < threads_count; ++worker) {
    workers_.emplace_back([this, worker] { work(worker); });
    pthread_setname_np(workers_.back().native_handle(),
                       ("team-" + std::to_string(worker)).substr(0, 15).c_str());
  }
}

ThreadTeam::~ThreadTeam() {
  stopping_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadTeam::run(int64_t count, Call call, void* context) {
  if (workers_.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) call(context, i, 0);
    return;
  }
  call_ = call;
  context_ = context;
  count_ = count;
  next_index_.store(0, std::memory_order_relaxed);
  workers_busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  epoch_.fetch_add(1);  // sequentially consistent: a worker about to sleep sees it, or we see it
  if (sleepers_.load() > 0) epoch_.notify_all();
  take_indices(0);
  while (!spin_until([this] { return workers_busy_.load(std::memory_order_acquire) == 0; })) {
    std::this_thread::yield();  // fewer cores than threads
  }
}

void ThreadTeam::take_indices(int worker) {
  for (;;) {
    const int64_t index = next_index_.fetch_add(1, std::memory_order_relaxed);
    if (index >= count_) return;
    call_(context_, index, worker);
  }
}

void ThreadTeam::work(int worker) {
  uint32_t seen = 0;
  for (;;) {
    if (!spin_until([&] { return epoch_.load(std::memory_order_acquire) != seen; })) {
      sleepers_.fetch_add(1);
      epoch_.wait(seen);
      sleepers_.fetch_sub(1);
    }
    seen = epoch_.load(std::memory_order_acquire);
    if (stopping_.load()) return;
    take_indices(worker);
    workers_busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace tandem::cpu
