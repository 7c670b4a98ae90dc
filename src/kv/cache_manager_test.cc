// Goal: each promise of cache_manager.h, by hand-made examples small enough to check on paper.
// Method: pages of 4 tokens, pools of a few pages; see cache_property_test.cc for the rest.
#include "kv/cache_manager.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>

namespace tandem::kv {
namespace {

constexpr uint32_t kPageTokens = 4;

std::unique_ptr<CacheManager> make_manager(uint32_t pages_total) {
  return CacheManager::create(
             {.pages_total = pages_total, .page_tokens = kPageTokens, .sequences_max = 4})
      .value();
}

/// Tokens first, first + 1, ...
std::vector<TokenId> range(uint32_t count, TokenId first = 0) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<PageId> pages_of(const SequenceCache& sequence) {
  return {sequence.pages().begin(), sequence.pages().end()};
}

/// Matches, grows and commits all tokens, like a prefill. Returns the tokens reused.
uint32_t prefill(CacheManager& manager, SequenceCache& sequence, const std::vector<TokenId>& tokens,
                 std::string_view salt = "") {
  uint32_t reused = manager.match_prefix(sequence, tokens, salt);
  EXPECT_TRUE(manager.grow(sequence, static_cast<uint32_t>(tokens.size())));
  manager.commit(sequence, tokens);
  manager.check_invariants();
  return reused;
}

TEST(CacheManager, CreateNamesTheBadOption) {
  auto error_of = [](CacheManager::Options options) {
    auto manager = CacheManager::create(options);
    return manager.ok() ? std::string() : manager.error().what;
  };
  EXPECT_EQ(error_of({.pages_total = 1, .page_tokens = 1, .sequences_max = 1}), "");
  EXPECT_NE(error_of({.pages_total = 0, .page_tokens = 1, .sequences_max = 1}).find("pages_total"),
            std::string::npos);
  EXPECT_NE(error_of({.pages_total = 1, .page_tokens = 0, .sequences_max = 1}).find("page_tokens"),
            std::string::npos);
  EXPECT_NE(
      error_of({.pages_total = 1, .page_tokens = 1, .sequences_max = 0}).find("sequences_max"),
      std::string::npos);
  EXPECT_NE(error_of({.pages_total = 1u << 28, .page_tokens = 1u << 28, .sequences_max = 1})
                .find("pages_total * page_tokens"),
            std::string::npos);
}

TEST(CacheManager, GrowIsAllOrNothing) {
  auto manager = make_manager(3);
  SequenceCache sequence;
  EXPECT_TRUE(manager->grow(sequence, 0));
  EXPECT_EQ(sequence.pages().size(), 0u);
  EXPECT_TRUE(manager->grow(sequence, 5));
  EXPECT_EQ(sequence.pages().size(), 2u);
  EXPECT_FALSE(manager->grow(sequence, 13));
  EXPECT_EQ(sequence.pages().size(), 2u);
  EXPECT_FALSE(manager->grow(sequence, UINT32_MAX));
  EXPECT_TRUE(manager->grow(sequence, 1)) << "growing never shrinks";
  EXPECT_EQ(sequence.pages().size(), 2u);
  EXPECT_TRUE(manager->grow(sequence, 12));
  EXPECT_EQ(manager->pages_available(), 0u);
  EXPECT_EQ(manager->stats().pages_used, 3u);
}

TEST(CacheManager, MatchNeverCoversTheLastToken) {
  auto manager = make_manager(16);
  SequenceCache first;
  prefill(*manager, first, range(12));
  for (uint32_t count : {0u, 1u, 3u, 4u, 5u, 8u, 9u, 11u, 12u, 13u}) {
    SequenceCache second;
    uint32_t reused = manager->match_prefix(second, range(count), "");
    EXPECT_EQ(reused, count == 0 ? 0 : (count - 1) / kPageTokens * kPageTokens) << count;
    for (size_t i = 0; i < second.pages().size(); ++i) {
      EXPECT_EQ(second.pages()[i], first.pages()[i]);
    }
  }
}

TEST(CacheManager, HeldPagesAreSharedAndCounted) {
  auto manager = make_manager(8);
  SequenceCache first;
  SequenceCache second;
  prefill(*manager, first, range(10));
  EXPECT_EQ(prefill(*manager, second, range(10)), 8u);
  EXPECT_EQ(manager->stats().pages_used, 4u) << "two shared, and one unfilled of each";
  EXPECT_NE(first.pages()[2], second.pages()[2]);
  manager->release(first);
  EXPECT_EQ(manager->stats().pages_used, 3u);
  EXPECT_EQ(manager->stats().pages_cached, 0u);
  manager->release(second);
  EXPECT_EQ(manager->stats().pages_used, 0u);
  EXPECT_EQ(manager->stats().pages_cached, 2u);
  EXPECT_EQ(manager->stats().query_tokens, 20u);
  EXPECT_EQ(manager->stats().hit_tokens, 8u);
  EXPECT_EQ(manager->pages_available(), 8u);
}

TEST(CacheManager, OnlyComputedFullPagesAreShared) {
  auto manager = make_manager(8);
  std::vector<TokenId> tokens = range(12);
  SequenceCache first;
  manager->match_prefix(first, tokens, "");
  ASSERT_TRUE(manager->grow(first, 12));
  for (auto [computed, expected] : {std::pair{0u, 0u}, {3u, 0u}, {4u, 4u}, {7u, 4u}, {11u, 8u}}) {
    manager->commit(first, std::span(tokens).first(computed));
    SequenceCache second;
    EXPECT_EQ(manager->match_prefix(second, tokens, ""), expected) << computed;
  }
}

TEST(CacheManager, SamePageBelowAnotherPrefixIsAnotherPage) {
  auto manager = make_manager(8);
  SequenceCache first;
  prefill(*manager, first, {1, 1, 1, 1, 5, 5, 5, 5});
  SequenceCache second;
  EXPECT_EQ(manager->match_prefix(second, std::vector<TokenId>{2, 2, 2, 2, 5, 5, 5, 5, 0}, ""), 0u);
  SequenceCache third;
  EXPECT_EQ(manager->match_prefix(third, std::vector<TokenId>{5, 5, 5, 5, 0}, ""), 0u);
}

TEST(CacheManager, SaltsDoNotMix) {
  auto manager = make_manager(16);
  SequenceCache first;
  prefill(*manager, first, range(8), "alice");
  for (std::string_view salt : {"", "bob", "alic", "alice "}) {
    SequenceCache other;
    EXPECT_EQ(manager->match_prefix(other, range(9), salt), 0u) << salt;
  }
  manager->release(first);
  SequenceCache again;
  EXPECT_EQ(manager->match_prefix(again, range(9), "alice"), 8u);
}

TEST(CacheManager, SaltOfEvictedPagesIsForgotten) {
  auto manager = make_manager(2);
  // More salts over time than the table can hold at once.
  for (int i = 0; i < 100; ++i) {
    SequenceCache sequence;
    EXPECT_EQ(prefill(*manager, sequence, range(8), std::to_string(i)), 0u);
  }
}

TEST(CacheManager, OverlongSaltSharesNothing) {
  auto manager = make_manager(8);
  for (auto [bytes, expected] : {std::pair{kSaltBytesMax, 8u}, {kSaltBytesMax + 1, 0u}}) {
    std::string salt(bytes, 'x');
    SequenceCache first;
    prefill(*manager, first, range(8), salt);
    SequenceCache second;
    EXPECT_EQ(manager->match_prefix(second, range(9), salt), expected) << bytes;
  }
}

TEST(CacheManager, SequenceThatNeverMatchedSharesNothing) {
  auto manager = make_manager(8);
  SequenceCache first;
  ASSERT_TRUE(manager->grow(first, 8));
  manager->commit(first, range(8));
  SequenceCache second;
  EXPECT_EQ(manager->match_prefix(second, range(9), ""), 0u);
}

TEST(CacheManager, EqualPagesStayPrivateAndTheirSequenceToo) {
  auto manager = make_manager(8);
  std::vector<TokenId> tokens = range(12);
  SequenceCache first;
  SequenceCache second;
  for (SequenceCache* sequence : {&first, &second}) {
    EXPECT_EQ(manager->match_prefix(*sequence, tokens, ""), 0u);
    ASSERT_TRUE(manager->grow(*sequence, 12));
  }
  manager->commit(first, std::span(tokens).first(4));
  std::vector<PageId> before = pages_of(second);
  manager->commit(second, tokens);
  EXPECT_EQ(pages_of(second), before);
  SequenceCache third;
  EXPECT_EQ(manager->match_prefix(third, tokens, ""), 4u);
  EXPECT_EQ(third.pages()[0], first.pages()[0]);
  manager->release(second);
  EXPECT_EQ(manager->stats().pages_cached, 0u);
  manager->check_invariants();
}

TEST(CacheManager, EvictsLeastRecentlyUsedAndTailFirst) {
  auto manager = make_manager(4);
  SequenceCache old_one;
  prefill(*manager, old_one, range(8, 100));
  SequenceCache new_one;
  prefill(*manager, new_one, range(8, 200));
  manager->release(old_one);
  manager->release(new_one);
  EXPECT_EQ(manager->stats().pages_cached, 4u);

  SequenceCache third;
  ASSERT_TRUE(manager->grow(third, 4));
  EXPECT_EQ(manager->stats().evictions, 1u);
  auto reused = [&](TokenId first) {
    SequenceCache probe;
    return manager->match_prefix(probe, range(9, first), "");
  };
  EXPECT_EQ(reused(200), 8u);
  EXPECT_EQ(reused(100), 4u) << "the tail is evicted before its parent";
  // The probes made 100 the most recently used.
  ASSERT_TRUE(manager->grow(third, 12));
  EXPECT_EQ(manager->stats().evictions, 3u);
  EXPECT_EQ(reused(200), 0u);
  EXPECT_EQ(reused(100), 4u);
}

TEST(CacheManager, MatchedPagesAreSafeFromEviction) {
  auto manager = make_manager(3);
  SequenceCache first;
  prefill(*manager, first, range(8));
  manager->release(first);
  SequenceCache second;
  ASSERT_EQ(manager->match_prefix(second, range(9), ""), 8u);
  EXPECT_EQ(manager->pages_available(), 1u);
  std::vector<PageId> matched = pages_of(second);
  SequenceCache third;
  EXPECT_FALSE(manager->grow(third, 8));
  EXPECT_TRUE(manager->grow(third, 4));
  EXPECT_NE(third.pages()[0], matched[0]);
  EXPECT_NE(third.pages()[0], matched[1]);
}

TEST(CacheManager, WithoutPrefixCachingNothingIsKept) {
  auto manager = CacheManager::create({.pages_total = 4,
                                       .page_tokens = kPageTokens,
                                       .sequences_max = 2,
                                       .prefix_caching = false})
                     .value();
  SequenceCache first;
  EXPECT_EQ(prefill(*manager, first, range(8)), 0u);
  manager->release(first);
  EXPECT_EQ(manager->stats().pages_cached, 0u);
  EXPECT_EQ(prefill(*manager, first, range(8)), 0u);
  EXPECT_EQ(manager->stats().query_tokens, 0u);
}

TEST(SequenceCache, MovesAndGivesBack) {
  auto manager = make_manager(4);
  {
    SequenceCache first;
    ASSERT_TRUE(manager->grow(first, 8));
    std::vector<PageId> pages = pages_of(first);
    SequenceCache second(std::move(first));
    EXPECT_EQ(pages_of(second), pages);
    EXPECT_TRUE(first.pages().empty());
    SequenceCache third;
    ASSERT_TRUE(manager->grow(third, 4));
    third = std::move(second);
    EXPECT_EQ(pages_of(third), pages);
    EXPECT_EQ(manager->stats().pages_used, 2u) << "what the target held is given back";
    SequenceCache* self = &third;
    third = std::move(*self);
    EXPECT_EQ(pages_of(third), pages);
  }
  EXPECT_EQ(manager->stats().pages_used, 0u);
  EXPECT_EQ(manager->pages_available(), 4u);
}

TEST(CacheManagerDeathTest, MisuseIsCaught) {
  auto manager = make_manager(4);
  auto other = make_manager(4);
  std::vector<TokenId> tokens = range(8);
  SequenceCache sequence;
  EXPECT_DEATH(manager->commit(sequence, tokens), "belongs to no");
  ASSERT_EQ(prefill(*manager, sequence, tokens), 0u);
  EXPECT_DEATH(manager->match_prefix(sequence, tokens, ""), "needs an empty sequence");
  EXPECT_DEATH(manager->commit(sequence, range(9)), "have no pages");
  EXPECT_DEATH(manager->commit(sequence, range(4)), "fewer than before");
  EXPECT_DEATH(manager->commit(sequence, range(8, 1)), "differ from those");
  EXPECT_DEATH(other->grow(sequence, 1), "another manager");
  EXPECT_DEATH(other->release(sequence), "another manager");
  SequenceCache more[4];
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(manager->grow(more[i], 0));
  EXPECT_DEATH(manager->grow(more[3], 0), "sequences_max");
  EXPECT_DEATH(manager.reset(), "outlive");
}

}  // namespace
}  // namespace tandem::kv
