// Goal: pages that a peer may still touch go to nobody else before they are released, are counted,
// and are given back once (field cases A4, A24). Method: hand-made examples in pools of a few
// pages; cache_property_test.cc does the rest.
#include "kv/page_lease.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kv/cache_manager.h"

namespace tandem::kv {
namespace {

const std::vector<TokenId> kPrompt{1, 2, 3, 4,  5, 6,
                                   7, 8, 9, 10, 11};  // pages of 4: two and a rest

std::unique_ptr<CacheManager> make_manager(uint32_t pages_total) {
  return CacheManager::create({.pages_total = pages_total,
                               .page_tokens = 4,
                               .sequences_max = 2,
                               .leases_max = 2,
                               .quarantine_pages_max = 1})
      .value();
}

std::vector<PageId> pages_of(std::span<const PageId> pages) {
  return {pages.begin(), pages.end()};
}

/// A sequence whose prompt is computed.
SequenceCache computed(CacheManager& manager) {
  SequenceCache sequence;
  manager.match_prefix(sequence, kPrompt, "");
  EXPECT_TRUE(manager.grow(sequence, 11));
  manager.commit(sequence, kPrompt);
  return sequence;
}

TEST(PageLease, KeepsTheSourcesPagesUntilTheyAreDelivered) {
  auto manager = make_manager(4);
  SequenceCache sequence = computed(*manager);
  const std::vector<PageId> pages = pages_of(sequence.pages());
  PageLease lease = manager->lease(sequence);
  EXPECT_TRUE(sequence.pages().empty());
  EXPECT_EQ(pages_of(lease.pages()), pages);
  EXPECT_EQ(manager->stats().pages_leased, 3u);
  EXPECT_EQ(manager->stats().pages_used, 3u);
  EXPECT_FALSE(manager->quarantine_is_full());

  SequenceCache other;
  EXPECT_FALSE(manager->grow(other, 8)) << "one page is left, and none may be evicted";
  SequenceCache equal;
  EXPECT_EQ(manager->match_prefix(equal, kPrompt, ""), 8u) << "what is leased can be shared";
  manager->release(equal);
  manager->release(lease);
  EXPECT_TRUE(lease.pages().empty());
  EXPECT_EQ(manager->stats().pages_leased, 0u);
  EXPECT_EQ(manager->stats().pages_cached, 2u) << "what was indexed stays matchable";
  EXPECT_TRUE(manager->grow(other, 16));
  manager->check_invariants();
}

TEST(PageLease, QuarantineKeepsOnlyWhatMayBeWritten) {
  auto manager = make_manager(4);
  {
    SequenceCache before = computed(*manager);
  }
  SequenceCache import;
  ASSERT_EQ(manager->match_prefix(import, kPrompt, ""), 8u);
  ASSERT_TRUE(manager->grow(import, 16));  // two shared, two of its own
  const std::vector<PageId> own = pages_of(import.pages().subspan(2));
  PageLease quarantine = manager->quarantine(import);
  EXPECT_TRUE(import.pages().empty());
  EXPECT_EQ(pages_of(quarantine.pages()), own);
  EXPECT_EQ(manager->stats().pages_quarantined, 2u);
  EXPECT_TRUE(manager->quarantine_is_full()) << "two are more than one";
  EXPECT_EQ(manager->pages_available(), 2u);

  SequenceCache next;
  ASSERT_TRUE(manager->grow(next, 8));
  for (PageId page : next.pages()) {
    EXPECT_TRUE(page != own[0] && page != own[1]) << "another sequence's page may be written";
  }
  EXPECT_FALSE(manager->grow(next, 9));
  quarantine = {};
  EXPECT_FALSE(manager->quarantine_is_full());
  EXPECT_TRUE(manager->grow(next, 16));
  manager->check_invariants();
}

TEST(PageLease, MovesAndGivesBack) {
  auto manager = make_manager(4);
  SequenceCache sequence = computed(*manager);
  {
    PageLease first = manager->lease(sequence);
    PageLease second(std::move(first));
    EXPECT_TRUE(first.pages().empty());
    EXPECT_EQ(second.pages().size(), 3u);
    first = std::move(second);
    EXPECT_EQ(manager->leases_count(), 1u);
  }
  EXPECT_EQ(manager->leases_count(), 0u);
  EXPECT_EQ(manager->stats().pages_used, 0u);
  manager->check_invariants();
}

TEST(PageLeaseDeathTest, MisuseIsCaught) {
  auto manager = make_manager(12);
  auto other = make_manager(4);
  SequenceCache never_used;
  EXPECT_DEATH(static_cast<void>(manager->lease(never_used)), "belongs to no");
  SequenceCache sequence = computed(*manager);
  EXPECT_DEATH(static_cast<void>(other->lease(sequence)), "another manager");
  PageLease first = manager->lease(sequence);
  EXPECT_DEATH(other->release(first), "another manager");
  SequenceCache more = computed(*manager);
  PageLease second = manager->quarantine(more);
  more = computed(*manager);
  EXPECT_DEATH(static_cast<void>(manager->lease(more)), "leases_max");
  manager->release(more);
  EXPECT_DEATH(manager.reset(), "outlive");
}

}  // namespace
}  // namespace tandem::kv
