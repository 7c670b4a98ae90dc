#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace tandem::kv {

/// Who has which page. A page is in exactly one state:
///   free    nobody needs its content;
///   held    by one or more sequences (counted);
///   cached  held by nobody, but its content is still matchable; ordered by when it was let go.
/// The pool knows nothing about tokens. Free and cached pages sit in two lists threaded through
/// one pair of arrays, because no page is ever in both; every operation is O(1).
///
/// Owns the arrays, all reserved by the constructor. One thread.
class PagePool {
 public:
  explicit PagePool(uint32_t pages_total);

  uint32_t total() const { return static_cast<uint32_t>(holders_.size()); }
  uint32_t free_count() const { return free_.size; }
  uint32_t cached_count() const { return cached_.size; }
  uint32_t held_count() const { return total() - free_.size - cached_.size; }
  uint32_t holders(PageId page) const;
  bool is_cached(PageId page) const;

  /// Free -> held once. At least one page must be free.
  PageId take_free();
  /// The page let go longest ago, cached -> held once. The caller forgets its content.
  PageId take_oldest_cached();
  /// One more holder: held or cached -> held.
  void retain(PageId page);
  /// One holder less. The last one leaves the page cached when `matchable`, else free.
  void release(PageId page, bool matchable);

  /// Cached pages, the next to be taken first. For checks: allocates.
  std::vector<PageId> cached_pages() const;
  /// Debug: ends the process when a list, a state or a count contradicts another.
  void check_invariants() const;

 private:
  enum class State : uint8_t { kFree, kHeld, kCached };
  struct List {
    uint32_t first;
    uint32_t last;
    uint32_t size = 0;
  };

  void push_back(List& list, uint32_t page);
  void remove(List& list, uint32_t page);
  void check_list(const List& list, State state) const;

  // Per page.
  std::vector<uint32_t> holders_;
  std::vector<State> states_;
  std::vector<uint32_t> previous_;
  std::vector<uint32_t> next_;
  List free_;
  List cached_;
};

}  // namespace tandem::kv
