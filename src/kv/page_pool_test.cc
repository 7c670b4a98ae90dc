// Goal: PagePool moves pages between free, held and cached as page_pool.h says.
// Method: a small pool by hand; counts and order after each move.
#include "kv/page_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem::kv {
namespace {

TEST(PagePool, HandsOutEachPageOnce) {
  PagePool pool(5);
  std::set<uint32_t> taken;
  while (pool.free_count() > 0) taken.insert(pool.take_free().value);
  EXPECT_EQ(taken, (std::set<uint32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool.held_count(), 5u);
  pool.check_invariants();
}

TEST(PagePool, LastHolderDecides) {
  PagePool pool(2);
  PageId page = pool.take_free();
  pool.retain(page);
  pool.release(page, true);
  EXPECT_EQ(pool.holders(page), 1u);
  EXPECT_FALSE(pool.is_cached(page));
  pool.release(page, true);
  EXPECT_TRUE(pool.is_cached(page));
  pool.retain(page);
  EXPECT_FALSE(pool.is_cached(page));
  EXPECT_EQ(pool.holders(page), 1u);
  pool.release(page, false);
  EXPECT_EQ(pool.free_count(), 2u);
  pool.check_invariants();
}

TEST(PagePool, OldestCachedGoesFirst) {
  PagePool pool(4);
  PageId pages[4];
  for (PageId& page : pages) page = pool.take_free();
  for (PageId page : pages) pool.release(page, true);
  pool.retain(pages[0]);  // from the front, the middle and the end of the list
  pool.retain(pages[2]);
  pool.retain(pages[3]);
  pool.check_invariants();
  pool.release(pages[3], true);
  pool.release(pages[0], true);
  EXPECT_EQ(pool.cached_pages(), (std::vector<PageId>{pages[1], pages[3], pages[0]}));
  EXPECT_EQ(pool.take_oldest_cached(), pages[1]);
  EXPECT_EQ(pool.take_oldest_cached(), pages[3]);
  EXPECT_EQ(pool.holders(pages[3]), 1u);
  pool.check_invariants();
}

TEST(PagePoolDeathTest, MisuseIsCaught) {
  PagePool pool(1);
  EXPECT_DEATH(pool.retain(PageId{0}), "free page");
  EXPECT_DEATH(pool.release(PageId{0}, false), "held by nobody");
  EXPECT_DEATH(pool.holders(PageId{1}), "not of this pool");
  EXPECT_DEATH(pool.take_oldest_cached(), "no cached page");
  pool.take_free();
  EXPECT_DEATH(pool.take_free(), "no free page");
}

}  // namespace
}  // namespace tandem::kv
