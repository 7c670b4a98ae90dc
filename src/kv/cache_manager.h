#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "kv/hash.h"
#include "kv/page_lease.h"
#include "kv/page_pool.h"
#include "kv/prefix_index.h"

namespace tandem::kv {

struct CacheStats {
  uint32_t pages_total = 0;
  uint32_t pages_used = 0;         ///< held by sequences, leases or in quarantine
  uint32_t pages_cached = 0;       ///< held by none, but still matchable
  uint32_t pages_leased = 0;       ///< in leases and holds, a page in two of them counts twice
  uint32_t pages_quarantined = 0;  ///< of the used ones, kept until no write can land
  // Since the start:
  uint64_t query_tokens = 0;  ///< tokens asked for in match_prefix
  uint64_t hit_tokens = 0;    ///< of these, found
  uint64_t evictions = 0;     ///< cached pages given to another content
};

class CacheManager;

/// The pages of one sequence, in token order. Gives them back when destroyed, so it must not
/// outlive its manager. Empty until first used with a manager, and again after release.
class SequenceCache {
 public:
  SequenceCache() = default;
  SequenceCache(SequenceCache&& source) noexcept;
  SequenceCache& operator=(SequenceCache&& source) noexcept;
  ~SequenceCache();

  std::span<const PageId> pages() const { return pages_; }

 private:
  friend CacheManager;
  void swap(SequenceCache& other) noexcept;

  CacheManager* manager_ = nullptr;  // set from first use to release
  std::vector<PageId> pages_;
  uint32_t full_pages_ = 0;      // matched, or filled and seen by commit
  PrefixNode root_ = kNoNode;    // of the salt; none when the sequence shares nothing
  PrefixNode parent_ = kNoNode;  // of the next page to index; none when later pages stay private
};

/// Which page holds which tokens, for the sequences of one engine: a pool of pages, and an index
/// that lets a new sequence take over pages whose content was computed before. Host metadata only;
/// nothing here touches K and V.
///
/// Shared pages are never written: only full pages are shared, a match ends on a page boundary
/// before the last token, and the engine writes only behind what is matched or computed.
///
/// Owns all bookkeeping, reserved by create (a page list by its sequence's first use, and kept for
/// later sequences). Every call costs O(1) per page it adds, matches, fills or gives back. One
/// thread. Misuse by the engine is a failed check; running out of pages is an ordinary answer.
class CacheManager {
 public:
  struct Options {
    uint32_t pages_total;
    uint32_t page_tokens;
    uint32_t sequences_max;   ///< sequences in use (first use to release) at a time
    uint32_t leases_max = 0;  ///< leases and quarantines at a time
    /// The quarantine is full above so many pages.
    uint32_t quarantine_pages_max = 0;
    bool prefix_caching = true;
    uint64_t seed = 0;              ///< of the page keys; unpredictable in production
    HashFunction hash = xxh3_hash;  ///< tests inject a weak one
  };
  static Result<std::unique_ptr<CacheManager>> create(const Options& options);
  ~CacheManager();
  CacheManager(const CacheManager&) = delete;
  CacheManager& operator=(const CacheManager&) = delete;

  /// Takes the shared pages of the longest cached prefix of `tokens` under `salt`, never covering
  /// the last token. The sequence must be empty. Returns the tokens reused, a multiple of
  /// page_tokens. A sequence must come here, hit or not, for its own pages to become shareable;
  /// one that does not, or whose salt is longer than kSaltBytesMax, shares nothing.
  uint32_t match_prefix(SequenceCache& sequence, std::span<const TokenId> tokens,
                        std::string_view salt);

  /// Makes the pages cover `tokens_count` tokens, evicting the least recently used cached pages
  /// where no page is free. All or nothing: false leaves everything as it was. Never shrinks.
  bool grow(SequenceCache& sequence, uint32_t tokens_count);

  /// Tells that K and V of `computed_tokens`, all tokens from the sequence's first, are in the
  /// pool. Newly filled pages become shareable. From the first page whose equal is in the index
  /// already, the sequence's pages stay private: a private page cannot be a parent in the index.
  void commit(SequenceCache& sequence, std::span<const TokenId> computed_tokens);

  /// Gives back all pages. Those in the index stay matchable until evicted, the last one first.
  /// Does nothing to an empty sequence.
  void release(SequenceCache& sequence);

  /// Takes over all pages of a sequence that a peer reads, until the lease is released. What was
  /// shared stays shared. The sequence is empty afterwards.
  PageLease lease(SequenceCache& sequence);
  /// The same for a sequence that a peer may still write: of its pages those that are not shared;
  /// the shared ones, which nobody writes, are given back.
  PageLease quarantine(SequenceCache& sequence);
  /// Holds all pages of a sequence, which goes on. What a peer writes into them late must be what
  /// is there already: some may be shared.
  PageLease hold(const SequenceCache& sequence);
  /// Gives the pages back. Does nothing to an empty lease.
  void release(PageLease& lease);
  uint32_t leases_count() const { return leases_open_; }
  /// Whether so many pages wait for peers that no more should be lent: the engine stops admitting.
  bool quarantine_is_full() const { return pages_quarantined_ > quarantine_pages_max_; }

  uint32_t pages_available() const { return pool_.free_count() + pool_.cached_count(); }
  CacheStats stats() const;

  /// Debug, O(pages): ends the process when the bookkeeping contradicts itself.
  void check_invariants() const;

 private:
  explicit CacheManager(const Options& options);
  void open(SequenceCache& sequence);
  PageId take_page();
  std::vector<PageId> take_list();
  void give_back(std::vector<PageId>& pages);
  std::vector<PageId> close(SequenceCache& sequence);
  PageLease open_lease(std::vector<PageId> pages, bool is_quarantine);

  uint32_t page_tokens_;
  uint32_t sequences_max_;
  PagePool pool_;
  std::unique_ptr<PrefixIndex> index_;  // none without prefix caching
  const uint32_t leases_max_;
  const uint32_t quarantine_pages_max_;
  uint32_t sequences_open_ = 0;
  uint32_t leases_open_ = 0;
  uint32_t pages_leased_ = 0;
  uint32_t pages_quarantined_ = 0;
  // Of released sequences and leases, with their memory.
  std::vector<std::vector<PageId>> spare_lists_;
  uint64_t query_tokens_ = 0;
  uint64_t hit_tokens_ = 0;
  uint64_t evictions_ = 0;
};

}  // namespace tandem::kv
