// Goal: a warm CacheManager takes no memory from the heap.
// Method: this executable's operator new counts; hits, misses, evictions, new salts, releases,
// leases, quarantines and fresh SequenceCache objects must leave the count unchanged after one
// warm-up round.
#include <gtest/gtest.h>

#include <string>

#include "base/testing/count_allocations.h"
#include "kv/cache_manager.h"

namespace tandem::kv {
namespace {

TEST(Allocation, NoneInSteadyState) {
  auto manager = CacheManager::create(
                     {.pages_total = 18, .page_tokens = 2, .sequences_max = 2, .leases_max = 1})
                     .value();
  std::vector<TokenId> tokens(12);
  std::string salts[] = {std::string(40, 'a'), std::string(kSaltBytesMax, 'b'), std::string()};
  auto round = [&](TokenId first) {
    tokens[2] = first;
    const std::string& salt = salts[first % 3];
    SequenceCache one;
    SequenceCache two;
    manager->match_prefix(one, tokens, salt);
    ASSERT_TRUE(manager->grow(one, 12));
    manager->commit(one, tokens);
    manager->match_prefix(two, tokens, salt);
    ASSERT_TRUE(manager->grow(two, 12));
    manager->commit(two, tokens);
    PageLease lease = first % 2 == 0 ? manager->lease(two) : manager->quarantine(two);
    manager->match_prefix(two, tokens, "while it is lent");
    ASSERT_TRUE(manager->grow(two, 12));
    manager->release(lease);
    manager->release(one);
  };
  round(0);
  uint64_t before = allocations_count;
  for (TokenId first = 1; first < 100; ++first) round(first);
  EXPECT_EQ(allocations_count, before);
  EXPECT_GT(manager->stats().evictions, 100u);
  EXPECT_GT(manager->stats().hit_tokens, 100u);

  std::vector<int> counted(10);
  EXPECT_GT(allocations_count, before) << "the counter itself works";
}

}  // namespace
}  // namespace tandem::kv
