#include "apps/comm_loop.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "comm/barrier/barrier.h"
#include "comm/measure_heap.h"
#include "comm/thread_group.h"
#include "cpu/cpu_device.h"

namespace tandem::apps {
namespace {

using Clock = std::chrono::steady_clock;

/// Calls and copies of a round take about this long, so that its barriers do not count.
constexpr double kRoundSeconds = 0.02;
constexpr int kCallsMin = 4;
constexpr int kCallsMax = 2000;
constexpr size_t kCopiedBytes = size_t{64} << 20;  // by each thread in a round
constexpr size_t kCopiesMax = 20000;

double us_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - start).count();
}

double percentile(std::vector<double>& values, double share) {
  const auto at = static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(at));
  return values[at];
}

/// What the ranks' threads share. Rank 0 keeps the clock of the rounds.
struct Bench {
  const Collective& collective;
  const CommSize& size;
  uint32_t rounds;
  std::atomic<int> calls{kCallsMin};
  std::vector<double> copy_us, call_us;           // of each round, one copy or call
  std::vector<std::vector<double>> latencies_us;  // [ranks] of every call
  std::atomic<uint64_t> bytes_put{0};
};

class Copies {
 public:
  explicit Copies(size_t bytes)
      : from_(bytes, std::byte{1}),
        to_(bytes),
        count_(std::clamp<size_t>(kCopiedBytes / bytes, 1, kCopiesMax)) {}
  size_t count() const { return count_; }
  void run() {
    for (size_t i = 0; i < count_; ++i) {
      std::memcpy(to_.data(), from_.data(), from_.size());
      asm volatile("" : : "r"(to_.data()) : "memory");  // the copy is used
    }
  }

 private:
  std::vector<std::byte> from_, to_;
  size_t count_;
};

Result<void> run_rank(Bench& bench, comm::SymmetricHeap& heap) {
  cpu::CpuStream stream(1, cpu::best_matrix_path());
  auto barrier = TANDEM_TRY(comm::Barrier::create(heap));
  const CommCall call = TANDEM_TRY(bench.collective.make(heap, stream, bench.size));
  const bool keeps_time = heap.rank() == 0;
  Copies copies(message_bytes(bench.size));
  const auto run_calls = [&](int count, std::vector<double>* latencies) -> Result<double> {
    TANDEM_TRY(barrier.wait());
    const auto start = Clock::now();
    for (auto before = start; count > 0; --count) {
      TANDEM_TRY(call());
      const auto now = Clock::now();
      if (latencies != nullptr) latencies->push_back(us_between(before, now));
      before = now;
    }
    TANDEM_TRY(barrier.wait());
    return us_between(start, Clock::now());
  };
  const double first_us = TANDEM_TRY(run_calls(kCallsMin, nullptr)) / kCallsMin;
  if (keeps_time) {
    bench.calls =
        static_cast<int>(std::clamp<double>(kRoundSeconds * 1e6 / first_us, kCallsMin, kCallsMax));
  }
  TANDEM_TRY(barrier.wait());
  const int calls = bench.calls;
  std::vector<double>& latencies = bench.latencies_us[static_cast<size_t>(heap.rank())];
  latencies.reserve(static_cast<size_t>(calls) * bench.rounds);
  const uint64_t before = heap.counters().bytes_put;
  for (uint32_t round = 0; round < bench.rounds; ++round) {
    TANDEM_TRY(barrier.wait());
    const auto start = Clock::now();
    copies.run();
    TANDEM_TRY(barrier.wait());
    const double copies_us = us_between(start, Clock::now());
    const double calls_us = TANDEM_TRY(run_calls(calls, &latencies));
    if (!keeps_time) continue;
    bench.copy_us.push_back(copies_us / static_cast<double>(copies.count()));
    bench.call_us.push_back(calls_us / calls);
  }
  bench.bytes_put +=
      (heap.counters().bytes_put - before) / (static_cast<uint64_t>(calls) * bench.rounds);
  return {};
}

CommTimes times_of(Bench& bench) {
  const double moved = bench.collective.bytes_moved(bench.size);
  // All threads together read and write this in one copy.
  const double copied =
      2.0 * static_cast<double>(message_bytes(bench.size)) * static_cast<double>(bench.size.ranks);
  std::vector<double> floors, ratios, latencies;
  for (size_t round = 0; round < bench.call_us.size(); ++round) {
    floors.push_back(moved / copied * bench.copy_us[round]);
    ratios.push_back(moved > 0 ? bench.call_us[round] / floors.back() : 0);
  }
  for (const auto& of_rank : bench.latencies_us) {
    latencies.insert(latencies.end(), of_rank.begin(), of_rank.end());
  }
  return {.us_p50 = percentile(latencies, 0.5),
          .us_p99 = percentile(latencies, 0.99),
          .us = percentile(bench.call_us, 0.5),
          .floor_us = percentile(floors, 0.5),
          .over_floor = percentile(ratios, 0.5),
          .bytes_put = bench.bytes_put};
}

}  // namespace

Result<CommTimes> time_collective(const Collective& collective, const CommSize& size,
                                  uint32_t rounds) {
  cpu::CpuStream stream(1, cpu::best_matrix_path());
  const size_t heap_bytes =
      TANDEM_TRY(comm::measure_heap(size.ranks, [&](comm::SymmetricHeap& heap) -> Result<void> {
        TANDEM_TRY(comm::Barrier::create(heap));
        TANDEM_TRY(collective.make(heap, stream, size));
        return {};
      }));
  const auto group =
      TANDEM_TRY(comm::ThreadGroup::create({.ranks_count = size.ranks, .heap_bytes = heap_bytes}));
  Bench bench{.collective = collective, .size = size, .rounds = rounds};
  bench.latencies_us.resize(static_cast<size_t>(size.ranks));
  std::vector<Result<void>> results(static_cast<size_t>(size.ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Result<void>& result = results[static_cast<size_t>(rank)];
      result = run_rank(bench, group->heap(rank));
      if (!result.ok()) group->fail(rank, result.error().what);
    });
  }
  threads.clear();
  for (const Result<void>& result : results) TANDEM_TRY(result);
  return times_of(bench);
}

}  // namespace tandem::apps
