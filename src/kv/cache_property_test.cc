// Goal: CacheManager behaves as the plain model of cache_model.h says, whatever the order of calls.
// Method: 100,000 random operations per configuration, every answer, count and page content
// compared, all invariants checked after each. Another seed: --gtest_random_seed=N.
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "kv/cache_exercise.h"

namespace tandem::kv {
namespace {

uint64_t always_equal(std::span<const std::byte>, uint64_t) {
  return 7;
}

uint64_t two_bits(std::span<const std::byte> bytes, uint64_t seed) {
  return xxh3_hash(bytes, seed) & 3;
}

CacheStats exercise(const CacheManager::Options& options) {
  uint32_t seed = static_cast<uint32_t>(GTEST_FLAG_GET(random_seed));
  std::cout << "seed " << seed << '\n';
  std::mt19937_64 random(seed);
  CacheExercise exercise(options,
                         [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); });
  for (int i = 0; i < 100'000; ++i) exercise.step();
  exercise.finish_all();
  if (options.leases_max > 0) {
    EXPECT_GT(exercise.leased_max(), 3u) << "leases must happen, too";
    EXPECT_GT(exercise.quarantined_max(), 3u);
  }
  return exercise.stats();
}

// Hits and evictions must happen, or the comparison says nothing.
void expect_busy(const CacheStats& stats) {
  EXPECT_GT(stats.hit_tokens, 10'000u);
  EXPECT_LT(stats.hit_tokens, stats.query_tokens);
  EXPECT_GT(stats.evictions, 1'000u);
}

TEST(CacheProperty, SmallPages) {
  expect_busy(exercise({.pages_total = 24, .page_tokens = 1, .sequences_max = 5}));
}

TEST(CacheProperty, LargerPages) {
  expect_busy(exercise({.pages_total = 31, .page_tokens = 4, .sequences_max = 7, .seed = 9}));
}

TEST(CacheProperty, RoomyPool) {
  expect_busy(exercise({.pages_total = 80, .page_tokens = 2, .sequences_max = 6}));
}

TEST(CacheProperty, AllKeysCollide) {
  expect_busy(
      exercise({.pages_total = 24, .page_tokens = 2, .sequences_max = 5, .hash = always_equal}));
}

TEST(CacheProperty, MostKeysCollide) {
  expect_busy(
      exercise({.pages_total = 16, .page_tokens = 3, .sequences_max = 4, .hash = two_bits}));
}

TEST(CacheProperty, Lending) {
  expect_busy(exercise({.pages_total = 40,
                        .page_tokens = 2,
                        .sequences_max = 5,
                        .leases_max = 6,
                        .quarantine_pages_max = 4}));
}

TEST(CacheProperty, LendingLargerPages) {
  expect_busy(exercise(
      {.pages_total = 60, .page_tokens = 5, .sequences_max = 4, .leases_max = 3, .seed = 5}));
}

TEST(CacheProperty, LendingWithoutPrefixCaching) {
  exercise({.pages_total = 24,
            .page_tokens = 2,
            .sequences_max = 4,
            .leases_max = 4,
            .prefix_caching = false});
}

TEST(CacheProperty, OneSequenceTwoPages) {
  CacheStats stats = exercise({.pages_total = 2, .page_tokens = 2, .sequences_max = 1});
  EXPECT_GT(stats.hit_tokens, 0u);
  EXPECT_GT(stats.evictions, 0u);
}

TEST(CacheProperty, WithoutPrefixCaching) {
  CacheStats stats =
      exercise({.pages_total = 16, .page_tokens = 2, .sequences_max = 4, .prefix_caching = false});
  EXPECT_EQ(stats.hit_tokens, 0u);
  EXPECT_EQ(stats.pages_cached, 0u);
}

}  // namespace
}  // namespace tandem::kv
