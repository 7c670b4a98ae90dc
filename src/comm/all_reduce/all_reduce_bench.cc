// Goal: how far the collectives are from the copies that they cannot avoid. Method: 4 ranks as
// threads of this process; per call the time of the slowest rank. The floor, in the same run: the
// bytes that all ranks read and write (x read, sums written, and every byte put, twice) at the
// speed with which as many threads copy buffers of the message's size.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "comm/all_reduce/all_reduce.h"
#include "comm/barrier/barrier.h"
#include "comm/thread_group.h"
#include "cpu/cpu_device.h"

namespace tandem::comm {
namespace {

constexpr int kRanks = 4;
constexpr int kCalls = 20;
constexpr size_t kCopiedBytes = size_t{64} << 20;  // per thread, so that its start does not count
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Bytes read and written per second by all threads together.
double copy_bandwidth(size_t bytes) {
  std::vector<std::vector<std::byte>> from(kRanks, std::vector<std::byte>(bytes, std::byte{1}));
  std::vector<std::vector<std::byte>> to = from;
  const size_t calls = kCopiedBytes / bytes;
  const auto start = Clock::now();
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        for (size_t call = 0; call < calls; ++call) {
          std::memcpy(to[rank].data(), from[rank].data(), bytes);
          benchmark::DoNotOptimize(to[rank].data());
        }
      });
    }
  }
  return 2.0 * static_cast<double>(bytes * calls) * kRanks / seconds_since(start);
}

/// Seconds of kCalls calls.
double all_reduce_seconds(size_t floats) {
  auto group = *ThreadGroup::create({.ranks_count = kRanks, .heap_bytes = size_t{32} << 20});
  double seconds = 0;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      SymmetricHeap& heap = group->heap(rank);
      auto reduce = *AllReduce::create(heap, {.floats_max = int64_t{1} << 20});
      auto barrier = *Barrier::create(heap);
      cpu::CpuStream stream(1, cpu::best_matrix_path());
      std::vector<float> x(floats, 1.0f), y(floats);
      TANDEM_CHECK(reduce.run(stream, x, y).ok() && barrier.wait().ok());
      const auto start = Clock::now();
      for (int call = 0; call < kCalls; ++call) TANDEM_CHECK(reduce.run(stream, x, y).ok());
      TANDEM_CHECK(barrier.wait().ok());
      if (rank == 0) seconds = seconds_since(start);
    });
  }
  threads.clear();
  return seconds;
}

void bm_all_reduce(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  double seconds = 0;
  double floor = 0;
  for (auto _ : state) {
    const double bandwidth = copy_bandwidth(bytes);
    const double call = all_reduce_seconds(bytes / sizeof(float)) / kCalls;
    state.SetIterationTime(call);
    seconds += call;
    // Per rank: x is read and y written once; 2 (N-1) B / N bytes are put, each written once by us
    // and read once by their owner.
    const double put = 2.0 * (kRanks - 1) / kRanks;
    floor += kRanks * static_cast<double>(bytes) * (2 + 2 * put) / bandwidth;
  }
  state.counters["over_floor"] = seconds / floor;
}
BENCHMARK(bm_all_reduce)
    ->Arg(4 << 10)
    ->Arg(64 << 10)
    ->Arg(1 << 20)
    ->Iterations(10)
    ->UseManualTime();

}  // namespace
}  // namespace tandem::comm
