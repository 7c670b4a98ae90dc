#pragma once

// For kv's tests and fuzzer only.
// long: one model of the cache, read beside the code it checks.

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace tandem::kv {

/// What CacheManager promises, in the plainest form: a map from whole prefixes (salt and all token
/// ids) to pages, searched from end to end. It predicts hits, states and evictions exactly; which
/// free page a sequence gets is the manager's choice, and the model only checks that it was free.
class CacheModel {
 public:
  struct Sequence {
    std::string salt;
    std::vector<TokenId> tokens;
    std::vector<PageId> pages;
    uint32_t full_pages = 0;
    uint32_t shared_pages = 0;  // the first so many are in the map
    bool shares = false;        // matched, and no private full page yet
  };

  CacheModel(uint32_t pages_total, uint32_t page_tokens, bool prefix_caching, size_t salt_max)
      : page_tokens_(page_tokens), prefix_caching_(prefix_caching), salt_max_(salt_max) {
    for (uint32_t i = 0; i < pages_total; ++i) free_.insert(i);
  }

  uint64_t query_tokens = 0;
  uint64_t hit_tokens = 0;
  uint64_t evictions = 0;

  bool is_indexed(PageId page) const {
    for (const auto& [prefix, entry] : entries_) {
      if (entry.page == page) return true;
    }
    return false;
  }
  size_t cached_count() const {
    size_t count = 0;
    for (const auto& [prefix, entry] : entries_) count += entry.holders == 0;
    return count;
  }
  size_t free_count() const { return free_.size(); }

  /// Returns the tokens that must be reused.
  uint32_t match(Sequence& sequence) {
    if (!prefix_caching_) return 0;
    query_tokens += sequence.tokens.size();
    sequence.shares = sequence.salt.size() <= salt_max_;
    while (sequence.shares && (sequence.full_pages + 1) * page_tokens_ < sequence.tokens.size()) {
      auto found = entries_.find(prefix(sequence, sequence.full_pages + 1));
      if (found == entries_.end()) break;
      ++found->second.holders;
      sequence.pages.push_back(found->second.page);
      sequence.shared_pages = ++sequence.full_pages;
    }
    hit_tokens += sequence.full_pages * page_tokens_;
    return sequence.full_pages * page_tokens_;
  }

  bool can_grow(const Sequence& sequence, uint32_t tokens_count) const {
    return pages_for(tokens_count) <= sequence.pages.size() + free_count() + cached_count();
  }

  /// `pages` is what the manager says the sequence now has.
  void grow(Sequence& sequence, uint32_t tokens_count, std::span<const PageId> pages) {
    size_t before = sequence.pages.size();
    size_t after = std::max<size_t>(before, pages_for(tokens_count));
    TANDEM_CHECK(pages.size() == after, "grow gave a wrong number of pages");
    while (free_.size() < after - before) evict();
    for (size_t i = 0; i < after; ++i) {
      if (i < before) {
        TANDEM_CHECK(pages[i] == sequence.pages[i], "grow changed a page of the sequence");
      } else {
        TANDEM_CHECK(free_.erase(pages[i].value) == 1, "grow gave a page that is not free");
        sequence.pages.push_back(pages[i]);
      }
    }
  }

  void commit(Sequence& sequence, uint32_t computed) {
    for (; sequence.full_pages < computed / page_tokens_; ++sequence.full_pages) {
      if (!sequence.shares) continue;
      PageId page = sequence.pages[sequence.full_pages];
      Entry entry{.page = page, .holders = 1 + holds_of(page)};
      sequence.shares = entries_.emplace(prefix(sequence, sequence.full_pages + 1), entry).second;
      sequence.shared_pages += sequence.shares;
      if (sequence.shares) holds_.erase(page.value);
    }
  }

  void release(Sequence& sequence) {
    ++releases_;
    for (uint32_t i = 0; i < sequence.pages.size(); ++i) {
      PageId page = sequence.pages[i];
      auto entry = std::ranges::find_if(
          entries_, [page](const auto& known) { return known.second.page == page; });
      if (entry != entries_.end()) {
        --entry->second.holders;
        entry->second.released_at = releases_;
      } else if (holds_of(page) > 0) {
        --holds_[page.value];
      } else {
        TANDEM_CHECK(free_.insert(page.value).second, "a free page was held");
      }
    }
    sequence = {.salt = sequence.salt, .tokens = sequence.tokens};
  }

  /// One more holder of every page; `sequence` goes on, and the result is released like one.
  Sequence hold(const Sequence& sequence) {
    for (uint32_t i = 0; i < sequence.pages.size(); ++i) {
      if (i < sequence.shared_pages) {
        ++entries_.at(prefix(sequence, i + 1)).holders;
      } else {
        ++holds_[sequence.pages[i].value];
      }
    }
    return sequence;
  }

  /// Gives back what is shared; the rest stays held by `sequence`, until it is released.
  void quarantine(Sequence& sequence) {
    Sequence shared = sequence;
    shared.pages.resize(sequence.shared_pages);
    release(shared);
    sequence.pages.erase(sequence.pages.begin(), sequence.pages.begin() + sequence.shared_pages);
    sequence.shared_pages = 0;
  }

 private:
  using Prefix = std::pair<std::string, std::vector<TokenId>>;
  struct Entry {
    PageId page;
    uint32_t holders;
    uint64_t released_at = 0;
  };

  size_t pages_for(uint32_t tokens) const { return (tokens + page_tokens_ - 1) / page_tokens_; }

  uint32_t holds_of(PageId page) const {
    auto found = holds_.find(page.value);
    return found == holds_.end() ? 0 : found->second;
  }

  Prefix prefix(const Sequence& sequence, uint32_t pages) const {
    auto begin = sequence.tokens.begin();
    return {sequence.salt, {begin, begin + pages * page_tokens_}};
  }

  /// Takes the unheld page that was released first; of one release, the longest prefix.
  void evict() {
    auto victim = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (it->second.holders > 0) continue;
      bool is_older = victim == entries_.end() ||
                      it->second.released_at < victim->second.released_at ||
                      (it->second.released_at == victim->second.released_at &&
                       it->first.second.size() > victim->first.second.size());
      if (is_older) victim = it;
    }
    TANDEM_CHECK(victim != entries_.end(), "the model has nothing to evict");
    free_.insert(victim->second.page.value);
    entries_.erase(victim);
    ++evictions;
  }

  uint32_t page_tokens_;
  bool prefix_caching_;
  size_t salt_max_;
  std::map<Prefix, Entry> entries_;
  std::set<uint32_t> free_;
  std::map<uint32_t, uint32_t> holds_;  // of pages that are not indexed, beside their sequence's
  uint64_t releases_ = 0;
};

}  // namespace tandem::kv
