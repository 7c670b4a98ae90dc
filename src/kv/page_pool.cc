#include "kv/page_pool.h"

#include "base/check.h"

namespace tandem::kv {

namespace {
constexpr uint32_t kNone = UINT32_MAX;
}  // namespace

PagePool::PagePool(uint32_t pages_total)
    : holders_(pages_total, 0),
      states_(pages_total, State::kFree),
      previous_(pages_total, kNone),
      next_(pages_total, kNone),
      free_{.first = kNone, .last = kNone},
      cached_{.first = kNone, .last = kNone} {
  for (uint32_t page = 0; page < pages_total; ++page) push_back(free_, page);
}

uint32_t PagePool::holders(PageId page) const {
  TANDEM_CHECK(page.value < total(), "page is not of this pool");
  return holders_[page.value];
}

bool PagePool::is_cached(PageId page) const {
  TANDEM_CHECK(page.value < total(), "page is not of this pool");
  return states_[page.value] == State::kCached;
}

PageId PagePool::take_free() {
  TANDEM_CHECK(free_.size > 0, "no free page");
  // The page freed last is taken first: its memory is the likeliest to be in a cache.
  uint32_t page = free_.last;
  remove(free_, page);
  states_[page] = State::kHeld;
  holders_[page] = 1;
  return PageId{page};
}

PageId PagePool::take_oldest_cached() {
  TANDEM_CHECK(cached_.size > 0, "no cached page");
  uint32_t page = cached_.first;
  remove(cached_, page);
  states_[page] = State::kHeld;
  holders_[page] = 1;
  return PageId{page};
}

void PagePool::retain(PageId page) {
  TANDEM_CHECK(page.value < total(), "page is not of this pool");
  State& state = states_[page.value];
  TANDEM_CHECK(state != State::kFree, "a free page has no content to share");
  if (state == State::kCached) {
    remove(cached_, page.value);
    state = State::kHeld;
  }
  ++holders_[page.value];
}

void PagePool::release(PageId page, bool matchable) {
  TANDEM_CHECK(page.value < total(), "page is not of this pool");
  TANDEM_CHECK(states_[page.value] == State::kHeld, "released page is held by nobody");
  if (--holders_[page.value] > 0) return;
  states_[page.value] = matchable ? State::kCached : State::kFree;
  push_back(matchable ? cached_ : free_, page.value);
}

void PagePool::push_back(List& list, uint32_t page) {
  previous_[page] = list.last;
  next_[page] = kNone;
  (list.last == kNone ? list.first : next_[list.last]) = page;
  list.last = page;
  ++list.size;
}

void PagePool::remove(List& list, uint32_t page) {
  uint32_t before = previous_[page];
  uint32_t after = next_[page];
  (before == kNone ? list.first : next_[before]) = after;
  (after == kNone ? list.last : previous_[after]) = before;
  --list.size;
}

std::vector<PageId> PagePool::cached_pages() const {
  std::vector<PageId> pages;
  for (uint32_t page = cached_.first; page != kNone; page = next_[page]) {
    pages.push_back(PageId{page});
  }
  return pages;
}

void PagePool::check_list(const List& list, State state) const {
  uint32_t size = 0;
  uint32_t before = kNone;
  for (uint32_t page = list.first; page != kNone; page = next_[page]) {
    TANDEM_CHECK(size < list.size, "a list is longer than its size, or a circle");
    TANDEM_CHECK(states_[page] == state, "a page is in a list of another state");
    TANDEM_CHECK(previous_[page] == before, "a list is not the same in both directions");
    before = page;
    ++size;
  }
  TANDEM_CHECK(list.last == before, "a list does not end at its last page");
  TANDEM_CHECK(list.size == size, "a list is shorter than its size");
}

void PagePool::check_invariants() const {
  check_list(free_, State::kFree);
  check_list(cached_, State::kCached);
  uint32_t held = 0;
  for (uint32_t page = 0; page < total(); ++page) {
    bool is_held = states_[page] == State::kHeld;
    TANDEM_CHECK(is_held == (holders_[page] > 0), "the state and the holders of a page disagree");
    held += is_held;
  }
  TANDEM_CHECK(held == held_count(), "a page is neither held nor in a list");
}

}  // namespace tandem::kv
