#pragma once

// For kv's tests and fuzzer only.
// long: one script of operations, shared by the tests and the fuzzer.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kv/cache_manager.h"
#include "kv/cache_model.h"

namespace tandem::kv {

/// Drives a CacheManager the way an engine does, by choices of the caller, and compares every
/// answer with CacheModel. It also plays the K and V pool: "computing" a token writes a hash of
/// its whole history to its place, and reading back any other hash means that a sequence was given
/// a wrong page or that a shared page was written. Peers do their part, too: what is leased must
/// read the same until it is released, and into the pages of an import, cancelled or not, somebody
/// writes until they are released. Ends the process at the first difference.
class CacheExercise {
 public:
  /// Returns a number below its argument.
  using Choose = std::function<uint32_t(uint32_t)>;

  CacheExercise(const CacheManager::Options& options, Choose choose)
      : options_(options),
        choose_(std::move(choose)),
        manager_(CacheManager::create(options).value()),
        model_(options.pages_total, options.page_tokens, options.prefix_caching, kSaltBytesMax),
        pool_(size_t{options.pages_total} * options.page_tokens, 0) {}

  void step() {
    if (!lent_.empty() && choose_(8) == 0) {
      end_lease(choose_(static_cast<uint32_t>(lent_.size())));
    } else if (live_.empty() || (live_.size() < options_.sequences_max && choose_(4) == 0)) {
      start();
    } else {
      Live& sequence = live_[choose_(static_cast<uint32_t>(live_.size()))];
      uint32_t action = choose_(16);
      if (sequence.imports) {
        action < 12 ? arrive(sequence) : cancel_import(sequence);
      } else if (action < 5) {
        grow(sequence);
      } else if (action < 11) {
        compute(sequence);
      } else if (action < 14) {
        for (uint32_t i = choose_(2 * options_.page_tokens + 1); i > 0; --i) append(sequence);
      } else if (action == 14) {
        preempt(sequence);
      } else {
        finish(sequence);
      }
    }
    write_late();
    check();
  }

  /// Ends every sequence; afterwards each page must be free or cached.
  void finish_all() {
    while (!live_.empty()) {
      live_.back().imports ? cancel_import(live_.back()) : finish(live_.back());
    }
    while (!lent_.empty()) end_lease(0);
    check();
    TANDEM_CHECK(manager_->stats().pages_used == 0, "pages are held after all were released");
    TANDEM_CHECK(manager_->pages_available() == options_.pages_total, "pages were lost");
  }

  CacheStats stats() const { return manager_->stats(); }
  size_t quarantined_max() const { return quarantined_max_; }
  size_t leased_max() const { return leased_max_; }

 private:
  struct Live {
    CacheModel::Sequence model;
    std::vector<uint64_t> histories;  // one per token
    uint32_t computed = 0;
    bool imports = false;  // its tokens from `computed` on are written by a peer
    SequenceCache cache;
  };
  struct Lent {
    CacheModel::Sequence model;
    std::vector<uint64_t> histories;  // of a lease's tokens that are computed
    bool is_quarantine = false;
    uint32_t written_from = UINT32_MAX;  // what a peer may still write, again
    PageLease lease;
  };

  void append(Live& sequence, TokenId token) {
    uint64_t before = sequence.histories.empty() ? std::hash<std::string>{}(sequence.model.salt)
                                                 : sequence.histories.back();
    sequence.model.tokens.push_back(token);
    // An odd multiplier keeps different histories different enough; never 0, the unwritten value.
    sequence.histories.push_back(
        ((before ^ (static_cast<uint64_t>(token) + 1)) * 0x9e3779b97f4a7c15u +
         0x632be59bd9b4e019u) |
        1);
  }
  void append(Live& sequence) { append(sequence, static_cast<TokenId>(choose_(2))); }

  void start() {
    Live sequence;
    static const std::string kSalts[] = {"", "a", "b", std::string(kSaltBytesMax, 'c'),
                                         std::string(kSaltBytesMax + 1, 'c')};
    sequence.model.salt = kSalts[choose_(2) == 0 ? 0 : choose_(5)];
    // Most prompts begin like one that is finished or running, often to its very end.
    if (const auto* known = known_prompt()) {
      // Half the pool at most: a prompt that fills the pool alone would end all variety.
      size_t kept =
          std::min<size_t>(known->size(), options_.pages_total * options_.page_tokens / 2);
      if (choose_(2) == 0) kept = choose_(static_cast<uint32_t>(kept) + 1);
      for (size_t i = 0; i < kept; ++i) append(sequence, (*known)[i]);
    }
    for (uint32_t i = choose_(2 * options_.page_tokens + 2); i > 0; --i) append(sequence);
    if (sequence.model.tokens.empty()) append(sequence);
    if (choose_(8) != 0) match(sequence);
    if (can_lend() && choose_(4) == 0) import(sequence);
    live_.push_back(std::move(sequence));
  }

  /// Every import may have to be quarantined.
  bool can_lend() const {
    auto imports = std::ranges::count_if(live_, [](const Live& live) { return live.imports; });
    return lent_.size() + static_cast<size_t>(imports) < options_.leases_max;
  }

  void import(Live& sequence) {
    auto tokens_count = static_cast<uint32_t>(sequence.model.tokens.size());
    bool expected = model_.can_grow(sequence.model, tokens_count);
    sequence.imports = manager_->grow(sequence.cache, tokens_count);
    TANDEM_CHECK(sequence.imports == expected, "an import grows like any sequence");
    model_.grow(sequence.model, expected ? tokens_count : 0, sequence.cache.pages());
  }

  /// All but the last token came from the peer.
  void arrive(Live& sequence) {
    sequence.imports = false;
    auto end = static_cast<uint32_t>(sequence.model.tokens.size()) - 1;
    uint32_t first = sequence.computed;
    if (end <= first) return;
    write(sequence, end);
    if (!can_lend() || choose_(4) == 0) return;
    std::vector<uint64_t> histories(sequence.histories.begin(), sequence.histories.begin() + end);
    lent_.push_back({.model = model_.hold(sequence.model),
                     .histories = std::move(histories),
                     .written_from = first,
                     .lease = manager_->hold(sequence.cache)});
  }

  void cancel_import(Live& sequence) {
    model_.quarantine(sequence.model);
    lent_.push_back({.model = std::move(sequence.model),
                     .is_quarantine = true,
                     .lease = manager_->quarantine(sequence.cache)});
    TANDEM_CHECK(sequence.cache.pages().empty(), "a sequence in quarantine has pages");
    std::swap(sequence, live_.back());
    live_.pop_back();
  }

  void lease(Live& sequence) {
    sequence.histories.resize(sequence.computed);
    lent_.push_back({.model = sequence.model,
                     .histories = std::move(sequence.histories),
                     .lease = manager_->lease(sequence.cache)});
    TANDEM_CHECK(sequence.cache.pages().empty(), "a leased sequence has pages");
    sequence.model.pages.clear();
    sequence.model.shared_pages = 0;
  }

  void end_lease(size_t i) {
    std::swap(lent_[i], lent_.back());
    Lent& lent = lent_.back();
    model_.release(lent.model);
    if (choose_(2) == 0) {
      manager_->release(lent.lease);
      TANDEM_CHECK(lent.lease.pages().empty(), "a released lease has pages");
      manager_->release(lent.lease);  // harmless
    }
    lent_.pop_back();  // the destructor releases
  }

  /// Of imports, cancelled ones too, anything may be written at any time.
  void write_late() {
    auto write = [&](std::span<const PageId> pages) {
      for (PageId page : pages) {
        TANDEM_CHECK(!model_.is_indexed(page), "a shared page would be written by a peer");
        pool_[page.value * options_.page_tokens + choose_(options_.page_tokens)] = 0;
      }
    };
    for (const Lent& lent : lent_) {
      if (lent.is_quarantine && choose_(4) == 0) write(lent.lease.pages());
      // Of an import that arrived, only what it wrote before.
      for (uint32_t i = lent.written_from; i < lent.histories.size(); ++i) {
        place(lent.lease.pages(), i) = lent.histories[i];
      }
    }
    for (const Live& live : live_) {
      if (live.imports && choose_(4) == 0) {
        write(live.cache.pages().subspan(live.computed / options_.page_tokens));
      }
    }
  }

  const std::vector<TokenId>* known_prompt() {
    uint32_t kind = choose_(8);
    if (kind == 0) return nullptr;
    if (kind < 4 && !live_.empty()) {
      return &live_[choose_(static_cast<uint32_t>(live_.size()))].model.tokens;
    }
    return past_.empty() ? nullptr : &past_[choose_(static_cast<uint32_t>(past_.size()))];
  }

  void match(Live& sequence) {
    uint32_t expected = model_.match(sequence.model);
    uint32_t reused =
        manager_->match_prefix(sequence.cache, sequence.model.tokens, sequence.model.salt);
    TANDEM_CHECK(reused == expected, "a match is longer or shorter than the model's");
    TANDEM_CHECK(reused < sequence.model.tokens.size(), "a match covers the last token");
    TANDEM_CHECK(std::ranges::equal(sequence.cache.pages(), sequence.model.pages),
                 "a match gave other pages than the model");
    sequence.computed = reused;
    read_back(sequence);
  }

  void grow(Live& sequence) {
    auto tokens_count =
        static_cast<uint32_t>(sequence.model.tokens.size()) + choose_(options_.page_tokens + 1);
    if (choose_(16) == 0) tokens_count = options_.pages_total * options_.page_tokens + choose_(2);
    bool expected = model_.can_grow(sequence.model, tokens_count);
    bool grown = manager_->grow(sequence.cache, tokens_count);
    TANDEM_CHECK(grown == expected, "grow succeeds exactly when free and cached pages suffice");
    model_.grow(sequence.model, grown ? tokens_count : 0, sequence.cache.pages());
  }

  void compute(Live& sequence) {
    size_t covered = sequence.model.pages.size() * options_.page_tokens;
    size_t end = std::min(sequence.model.tokens.size(), covered);
    if (end > sequence.computed) {
      end -= choose_(static_cast<uint32_t>(end - sequence.computed));  // a chunk, or all
    }
    write(sequence, end);
  }

  /// K and V up to `end`, and commits them.
  void write(Live& sequence, size_t end) {
    for (; sequence.computed < end; ++sequence.computed) {
      PageId page = sequence.model.pages[sequence.computed / options_.page_tokens];
      TANDEM_CHECK(!model_.is_indexed(page), "a shared page would be written");
      place(sequence.cache.pages(), sequence.computed) = sequence.histories[sequence.computed];
    }
    read_back(sequence);
    manager_->commit(sequence.cache, std::span(sequence.model.tokens).first(sequence.computed));
    model_.commit(sequence.model, sequence.computed);
  }

  void preempt(Live& sequence) {
    model_.release(sequence.model);
    manager_->release(sequence.cache);
    TANDEM_CHECK(sequence.cache.pages().empty(), "a released sequence has pages");
    manager_->release(sequence.cache);  // harmless
    sequence.computed = 0;
    match(sequence);
  }

  void finish(Live& sequence) {
    if (!sequence.model.pages.empty() && can_lend() && choose_(3) == 0) lease(sequence);
    model_.release(sequence.model);
    if (past_.size() == 8) past_.erase(past_.begin());
    past_.push_back(std::move(sequence.model.tokens));
    std::swap(sequence, live_.back());
    live_.pop_back();  // the destructor releases
  }

  uint64_t& place(std::span<const PageId> pages, uint32_t position) {
    PageId page = pages[position / options_.page_tokens];
    return pool_[page.value * options_.page_tokens + position % options_.page_tokens];
  }

  void read_back(const Live& sequence) {
    for (uint32_t i = 0; i < sequence.computed; ++i) {
      TANDEM_CHECK(place(sequence.cache.pages(), i) == sequence.histories[i],
                   "K and V are of other tokens");
    }
  }

  void check() {
    manager_->check_invariants();
    CacheStats stats = manager_->stats();
    check_lent(stats);
    size_t unused = model_.free_count() + model_.cached_count();
    TANDEM_CHECK(stats.pages_cached == model_.cached_count(), "pages_cached is wrong");
    TANDEM_CHECK(stats.pages_used == options_.pages_total - unused, "pages_used is wrong");
    TANDEM_CHECK(manager_->pages_available() == unused, "pages_available is wrong");
    TANDEM_CHECK(stats.evictions == model_.evictions, "evictions are miscounted");
    TANDEM_CHECK(stats.query_tokens == model_.query_tokens, "query_tokens is wrong");
    TANDEM_CHECK(stats.hit_tokens == model_.hit_tokens, "hit_tokens is wrong");
  }

  void check_lent(const CacheStats& stats) {
    size_t leased = 0;
    size_t quarantined = 0;
    for (const Lent& lent : lent_) {
      TANDEM_CHECK(std::ranges::equal(lent.lease.pages(), lent.model.pages),
                   "other pages are lent");
      (lent.is_quarantine ? quarantined : leased) += lent.lease.pages().size();
      for (uint32_t i = 0; i < lent.histories.size(); ++i) {
        TANDEM_CHECK(place(lent.lease.pages(), i) == lent.histories[i], "a leased page changed");
      }
    }
    TANDEM_CHECK(manager_->leases_count() == lent_.size(), "leases_count is wrong");
    TANDEM_CHECK(stats.pages_leased == leased, "pages_leased is wrong");
    TANDEM_CHECK(stats.pages_quarantined == quarantined, "pages_quarantined is wrong");
    bool is_full = quarantined > options_.quarantine_pages_max;
    TANDEM_CHECK(manager_->quarantine_is_full() == is_full, "quarantine_is_full is wrong");
    quarantined_max_ = std::max(quarantined_max_, quarantined);
    leased_max_ = std::max(leased_max_, leased);
  }

  CacheManager::Options options_;
  Choose choose_;
  std::unique_ptr<CacheManager> manager_;
  CacheModel model_;
  std::vector<uint64_t> pool_;  // [pages][page_tokens], what K and V would hold
  std::vector<Live> live_;
  std::vector<Lent> lent_;
  size_t quarantined_max_ = 0;  // pages, of all times
  size_t leased_max_ = 0;
  std::vector<std::vector<TokenId>> past_;  // prompts to start from again
};

}  // namespace tandem::kv
