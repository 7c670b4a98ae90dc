// Goal: the sum has the bits of the binary tree on every rank, for any number of ranks, any length,
// either path, in place or not, and moves the bytes that the header says. Method: random values of
// mixed exponents against a plain recursive sum; outputs start as NaN; ranks start each call at
// different times because they check the call before.
#include "comm/all_reduce/all_reduce.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "comm/testing/run_ranks.h"

namespace tandem::comm {
namespace {

/// The tree over leaves [first, first + width), width a power of two, of which `count` exist.
float tree(const std::vector<float>& leaves, size_t first, size_t width) {
  if (width == 1) return leaves[first];
  const float left = tree(leaves, first, width / 2);
  if (first + width / 2 >= leaves.size()) return left;
  return left + tree(leaves, first + width / 2, width / 2);
}

float tree(const std::vector<float>& leaves) {
  return tree(leaves, 0, std::bit_ceil(leaves.size()));
}

float part(uint64_t call, int rank, size_t i) {
  return test_value(call * 64 + static_cast<uint64_t>(rank), i);
}

Result<void> reduce_and_compare(SymmetricHeap& heap, AllReduce& reduce, uint64_t call, size_t n,
                                bool in_place) {
  const auto stream = rank_stream();
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = part(call, heap.rank(), i);
  std::vector<float> y(n, std::numeric_limits<float>::quiet_NaN());
  TANDEM_TRY(reduce.run(*stream, x, in_place ? x : y));
  const std::vector<float>& sum = in_place ? x : y;
  std::vector<float> leaves(static_cast<size_t>(heap.ranks_count()));
  for (size_t i = 0; i < n; ++i) {
    for (int rank = 0; rank < heap.ranks_count(); ++rank) {
      leaves[static_cast<size_t>(rank)] = part(call, rank, i);
    }
    if (std::bit_cast<uint32_t>(sum[i]) != std::bit_cast<uint32_t>(tree(leaves))) {
      return make_error(Code::kInternal, "call " + std::to_string(call) + " length " +
                                             std::to_string(n) + " differs at " +
                                             std::to_string(i));
    }
  }
  return {};
}

void expect_trees(int64_t piece_floats) {
  constexpr unsigned kSeed = 20240;
  for (int ranks : {1, 2, 3, 4, 8, 16}) {
    expect_ranks(ranks, 1 << 20, [&](SymmetricHeap& heap) -> Result<void> {
      auto reduce = TANDEM_TRY(AllReduce::create(
          heap, {.floats_max = 3000, .one_shot_floats_max = 700, .piece_floats = piece_floats}));
      std::mt19937 random(kSeed);  // the same lengths on every rank
      std::vector<size_t> lengths = {0, 1, 15, 16, 17, 700, 701, 3000, 3001, 9001};
      for (int i = 0; i < 20; ++i) lengths.push_back(random() % 4000);
      for (size_t call = 0; call < lengths.size(); ++call) {
        TANDEM_TRY(reduce_and_compare(heap, reduce, call, lengths[call], call % 3 == 1));
      }
      return {};
    });
  }
}

TEST(AllReduce, IsTheBinaryTreeForAnyLength) {
  expect_trees(1 << 15);
}

TEST(AllReduce, IsTheSameInPieces) {
  for (int64_t piece_floats : {1, 100, 999, 1500, 2999}) expect_trees(piece_floats);
}

TEST(AllReduce, MovesTheBytesOfTheContract) {
  for (int ranks : {1, 2, 3, 4, 8}) {
    expect_ranks(ranks, 8 << 20, [](SymmetricHeap& heap) -> Result<void> {
      const auto stream = rank_stream();
      const auto n = static_cast<uint64_t>(heap.ranks_count());
      auto reduce = TANDEM_TRY(AllReduce::create(heap, {.floats_max = 1 << 18}));
      const auto bytes_of = [&](size_t floats) -> Result<uint64_t> {
        const uint64_t before = heap.counters().bytes_put;
        std::vector<float> x(floats, 1.0f);
        TANDEM_TRY(reduce.run(*stream, x, x));
        return heap.counters().bytes_put - before;
      };
      EXPECT_EQ(TANDEM_TRY(bytes_of(1000)), (n - 1) * 4000);  // one-shot
      const size_t floats = 16 * n * 900;                     // two-shot, equal slices
      EXPECT_EQ(TANDEM_TRY(bytes_of(floats)), 2 * (n - 1) * floats * 4 / n);
      const size_t in_pieces = 16 * n * 4000;
      EXPECT_EQ(TANDEM_TRY(bytes_of(in_pieces)), 2 * (n - 1) * in_pieces * 4 / n);
      return {};
    });
  }
}

TEST(AllReduce, ARankWithoutAPartChangesNoBit) {
  expect_ranks(4, 1 << 20, [](SymmetricHeap& heap) -> Result<void> {
    const auto stream = rank_stream();
    auto reduce = TANDEM_TRY(AllReduce::create(heap, {.floats_max = 64}));
    const std::vector<float> values = {0.0f, -0.0f, 1.5f, std::numeric_limits<float>::denorm_min()};
    std::vector<float> x = values;
    if (heap.rank() != 2) x.assign(x.size(), AllReduce::kNoPart);
    TANDEM_TRY(reduce.run(*stream, x, x));
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(x[i]), std::bit_cast<uint32_t>(values[i]));
    }
    return {};
  });
}

TEST(AllReduce, SaysWhenTheHeapIsTooSmall) {
  expect_ranks(2, 4096, [](SymmetricHeap& heap) -> Result<void> {
    EXPECT_EQ(AllReduce::create(heap, {.floats_max = 1 << 20}).error().code,
              Code::kResourceExhausted);
    return {};
  });
}

}  // namespace
}  // namespace tandem::comm
