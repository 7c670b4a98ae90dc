#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "base/result.h"
#include "comm/thread_group.h"
#include "cpu/cpu_device.h"

namespace tandem::comm {

using RankBody = std::function<Result<void>(SymmetricHeap&)>;

/// For tests: runs body(heap) on one thread per rank. A rank that fails tells the others, so that
/// a failing test ends. Returns what each rank returned.
inline std::vector<Result<void>> run_ranks(ThreadGroup& group, const RankBody& body) {
  std::vector<Result<void>> results(static_cast<size_t>(group.ranks_count()));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < group.ranks_count(); ++rank) {
    threads.emplace_back([&, rank] {
      Result<void>& result = results[static_cast<size_t>(rank)];
      result = body(group.heap(rank));
      if (result.ok()) {
        group.leave(rank);
      } else {
        group.fail(rank, result.error().what);
      }
    });
  }
  threads.clear();
  return results;
}

/// The same in a new group, expecting every rank to succeed.
inline void expect_ranks(int ranks, size_t heap_bytes, const RankBody& body) {
  auto group = ThreadGroup::create({.ranks_count = ranks, .heap_bytes = heap_bytes});
  ASSERT_TRUE(group.ok()) << group.error().what;
  for (const Result<void>& result : run_ranks(**group, body)) {
    EXPECT_TRUE(result.ok()) << result.error().what;
  }
}

/// A stream that runs on the rank's own thread alone.
inline std::unique_ptr<Stream> rank_stream() {
  return std::make_unique<cpu::CpuStream>(1, cpu::best_matrix_path());
}

/// Values with all kinds of exponents, so that a sum in another order has other bits.
inline float test_value(uint64_t seed, uint64_t index) {
  uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15u + index * 0xd1342543de82ef95u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 32;
  const float mantissa = 1.0f + static_cast<float>(x & 0x7fffff) * 0x1p-23f;
  const float scale = static_cast<float>(1u << (x >> 40 & 15)) * 0x1p-8f;
  return (x >> 63 != 0 ? -mantissa : mantissa) * scale;
}

}  // namespace tandem::comm
