#include "kv/cache_manager.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "base/check.h"

namespace tandem::kv {

namespace {

// Far above any use; together they keep every index and node number below 2^32 and the token ids
// of the index below 16 GiB.
constexpr uint32_t kPagesMax = 1u << 28;
constexpr uint32_t kSequencesMax = 1u << 24;
constexpr uint64_t kTokensMax = uint64_t{1} << 32;
static_assert(2 * uint64_t{kPagesMax} + kSequencesMax < UINT32_MAX);

Result<void> check_range(const char* name, uint32_t value, uint32_t value_max) {
  if (value >= 1 && value <= value_max) return {};
  return make_error(Code::kInvalidArgument, std::string("kv cache: ") + name + " is " +
                                                std::to_string(value) + "; it must be in [1, " +
                                                std::to_string(value_max) + "]");
}

}  // namespace

SequenceCache::SequenceCache(SequenceCache&& source) noexcept {
  swap(source);
}

SequenceCache& SequenceCache::operator=(SequenceCache&& source) noexcept {
  SequenceCache taken(std::move(source));
  swap(taken);  // what this sequence had is given back by the destructor of `taken`
  return *this;
}

SequenceCache::~SequenceCache() {
  if (manager_ != nullptr) manager_->release(*this);
}

void SequenceCache::swap(SequenceCache& other) noexcept {
  std::swap(manager_, other.manager_);
  std::swap(pages_, other.pages_);
  std::swap(full_pages_, other.full_pages_);
  std::swap(root_, other.root_);
  std::swap(parent_, other.parent_);
}

Result<std::unique_ptr<CacheManager>> CacheManager::create(const Options& options) {
  TANDEM_TRY(check_range("pages_total", options.pages_total, kPagesMax));
  TANDEM_TRY(check_range("page_tokens", options.page_tokens, UINT32_MAX));
  TANDEM_TRY(check_range("sequences_max", options.sequences_max, kSequencesMax));
  if (options.leases_max > 0) {
    TANDEM_TRY(check_range("leases_max", options.leases_max, kSequencesMax));
  }
  TANDEM_CHECK(options.hash != nullptr, "the kv cache needs a hash function");
  uint64_t tokens = uint64_t{options.pages_total} * options.page_tokens;
  if (tokens > kTokensMax) {
    return make_error(Code::kInvalidArgument, "kv cache: pages_total * page_tokens is " +
                                                  std::to_string(tokens) + " tokens; at most " +
                                                  std::to_string(kTokensMax) +
                                                  " are supported, use fewer or smaller pages");
  }
  try {
    return std::unique_ptr<CacheManager>(new CacheManager(options));
  } catch (const std::bad_alloc&) {
    return make_error(Code::kResourceExhausted, "kv cache: no memory for the bookkeeping of " +
                                                    std::to_string(options.pages_total) +
                                                    " pages; lower pages_total");
  }
}

CacheManager::CacheManager(const Options& options)
    : page_tokens_(options.page_tokens),
      sequences_max_(options.sequences_max),
      pool_(options.pages_total),
      index_(options.prefix_caching ? std::make_unique<PrefixIndex>(
                                          PrefixIndex::Options{.pages_total = options.pages_total,
                                                               .page_tokens = options.page_tokens,
                                                               .roots_max = options.sequences_max,
                                                               .hash = options.hash,
                                                               .seed = options.seed})
                                    : nullptr),
      leases_max_(options.leases_max),
      quarantine_pages_max_(options.quarantine_pages_max) {
  spare_lists_.reserve(size_t{options.sequences_max} + options.leases_max);
}

CacheManager::~CacheManager() {
  TANDEM_CHECK(sequences_open_ == 0, "a sequence's pages outlive their manager");
  TANDEM_CHECK(leases_open_ == 0, "a lease outlives its manager");
}

void CacheManager::open(SequenceCache& sequence) {
  if (sequence.manager_ != nullptr) {
    TANDEM_CHECK(sequence.manager_ == this, "the sequence belongs to another manager");
    return;
  }
  TANDEM_CHECK(sequences_open_ < sequences_max_, "more sequences in use than sequences_max");
  ++sequences_open_;
  sequence.manager_ = this;
  sequence.pages_ = take_list();
}

std::vector<PageId> CacheManager::take_list() {
  std::vector<PageId> list;
  if (spare_lists_.empty()) {
    // The longest list there can be; memory that is never written costs nothing.
    list.reserve(pool_.total());
  } else {
    list = std::move(spare_lists_.back());
    spare_lists_.pop_back();
  }
  return list;
}

uint32_t CacheManager::match_prefix(SequenceCache& sequence, std::span<const TokenId> tokens,
                                    std::string_view salt) {
  TANDEM_CHECK(sequence.pages_.empty(), "match_prefix needs an empty sequence");
  TANDEM_CHECK(sequence.root_ == kNoNode, "match_prefix was called before on this sequence");
  open(sequence);
  if (index_ == nullptr) return 0;
  query_tokens_ += tokens.size();
  sequence.root_ = index_->open_root(salt);
  sequence.parent_ = sequence.root_;
  if (sequence.root_ == kNoNode || tokens.empty()) return 0;

  // The last token stays uncovered: computing it gives the logits of the next one.
  size_t pages_max = (tokens.size() - 1) / page_tokens_;
  for (size_t i = 0; i < pages_max; ++i) {
    auto page = index_->find(sequence.parent_, tokens.subspan(i * page_tokens_, page_tokens_));
    if (!page) break;
    pool_.retain(*page);
    sequence.pages_.push_back(*page);
    sequence.parent_ = index_->node(*page);
  }
  sequence.full_pages_ = static_cast<uint32_t>(sequence.pages_.size());
  uint32_t reused = sequence.full_pages_ * page_tokens_;
  hit_tokens_ += reused;
  return reused;
}

PageId CacheManager::take_page() {
  if (pool_.free_count() > 0) return pool_.take_free();
  // Pages are let go child before parent, and a held page's ancestors are held too, so the
  // oldest cached page never has a child in the index.
  PageId page = pool_.take_oldest_cached();
  index_->erase(page);
  ++evictions_;
  return page;
}

bool CacheManager::grow(SequenceCache& sequence, uint32_t tokens_count) {
  open(sequence);
  uint64_t needed = (uint64_t{tokens_count} + page_tokens_ - 1) / page_tokens_;
  uint64_t present = sequence.pages_.size();
  if (needed <= present) return true;
  if (needed - present > pages_available()) return false;
  for (uint64_t i = present; i < needed; ++i) sequence.pages_.push_back(take_page());
  return true;
}

void CacheManager::commit(SequenceCache& sequence, std::span<const TokenId> computed_tokens) {
  if (computed_tokens.empty()) return;
  TANDEM_CHECK(sequence.manager_ == this, "the sequence belongs to no or another manager");
  uint64_t full = computed_tokens.size() / page_tokens_;
  TANDEM_CHECK(full >= sequence.full_pages_, "computed tokens are fewer than before");
  TANDEM_CHECK(computed_tokens.size() <= sequence.pages_.size() * uint64_t{page_tokens_},
               "computed tokens have no pages");
  auto tokens_of = [&](uint64_t i) {
    return computed_tokens.subspan(i * page_tokens_, page_tokens_);
  };
  bool shares = sequence.parent_ != kNoNode;
  if (shares && sequence.full_pages_ > 0) {
    uint32_t last = sequence.full_pages_ - 1;
    TANDEM_CHECK(std::ranges::equal(index_->tokens(sequence.pages_[last]), tokens_of(last)),
                 "computed tokens differ from those matched or committed before");
  }
  for (uint64_t i = sequence.full_pages_; i < full && shares; ++i) {
    shares = index_->insert(sequence.parent_, tokens_of(i), sequence.pages_[i]);
    sequence.parent_ = shares ? index_->node(sequence.pages_[i]) : kNoNode;
  }
  sequence.full_pages_ = static_cast<uint32_t>(full);
}

/// Lets the pages go from the last one, so that children are evicted before their parents.
void CacheManager::give_back(std::vector<PageId>& pages) {
  for (size_t i = pages.size(); i-- > 0;) {
    pool_.release(pages[i], index_ != nullptr && index_->contains(pages[i]));
  }
  pages.clear();
}

/// Makes the sequence empty and returns its pages, still held.
std::vector<PageId> CacheManager::close(SequenceCache& sequence) {
  TANDEM_CHECK(sequence.manager_ == this, "the sequence belongs to no or another manager");
  if (sequence.root_ != kNoNode) index_->close_root(sequence.root_);
  std::vector<PageId> pages = std::move(sequence.pages_);
  sequence.pages_ = {};
  sequence.full_pages_ = 0;
  sequence.root_ = kNoNode;
  sequence.parent_ = kNoNode;
  sequence.manager_ = nullptr;
  --sequences_open_;
  return pages;
}

void CacheManager::release(SequenceCache& sequence) {
  if (sequence.manager_ == nullptr) return;
  std::vector<PageId> pages = close(sequence);
  give_back(pages);
  spare_lists_.push_back(std::move(pages));
}

PageLease CacheManager::open_lease(std::vector<PageId> pages, bool is_quarantine) {
  TANDEM_CHECK(leases_open_ < leases_max_, "more leases and quarantines than leases_max");
  ++leases_open_;
  (is_quarantine ? pages_quarantined_ : pages_leased_) += static_cast<uint32_t>(pages.size());
  PageLease lease;
  lease.manager_ = this;
  lease.pages_ = std::move(pages);
  lease.is_quarantine_ = is_quarantine;
  return lease;
}

PageLease CacheManager::lease(SequenceCache& sequence) {
  return open_lease(close(sequence), false);
}

PageLease CacheManager::hold(const SequenceCache& sequence) {
  TANDEM_CHECK(sequence.manager_ == this, "the sequence belongs to no or another manager");
  std::vector<PageId> pages = take_list();
  // From the first one on, so that a page that is held has its ancestors held, too.
  pages.assign(sequence.pages_.begin(), sequence.pages_.end());
  for (PageId page : pages) pool_.retain(page);
  return open_lease(std::move(pages), false);
}

PageLease CacheManager::quarantine(SequenceCache& sequence) {
  std::vector<PageId> pages = close(sequence);
  // Indexed pages, and only those, may be shared; they come first, and are let go last one first.
  const auto is_shared = [&](PageId page) { return index_ != nullptr && index_->contains(page); };
  const auto first_own = std::ranges::find_if_not(pages, is_shared);
  for (auto page = first_own; page != pages.begin();) pool_.release(*--page, true);
  pages.erase(pages.begin(), first_own);
  return open_lease(std::move(pages), true);
}

void CacheManager::release(PageLease& lease) {
  if (lease.manager_ == nullptr) return;
  TANDEM_CHECK(lease.manager_ == this, "the lease belongs to another manager");
  uint32_t& counted = lease.is_quarantine_ ? pages_quarantined_ : pages_leased_;
  counted -= static_cast<uint32_t>(lease.pages_.size());
  give_back(lease.pages_);
  spare_lists_.push_back(std::move(lease.pages_));
  lease.pages_ = {};
  lease.manager_ = nullptr;
  --leases_open_;
}

CacheStats CacheManager::stats() const {
  return {.pages_total = pool_.total(),
          .pages_used = pool_.held_count(),
          .pages_cached = pool_.cached_count(),
          .pages_leased = pages_leased_,
          .pages_quarantined = pages_quarantined_,
          .query_tokens = query_tokens_,
          .hit_tokens = hit_tokens_,
          .evictions = evictions_};
}

void CacheManager::check_invariants() const {
  pool_.check_invariants();
  const uint64_t lists = uint64_t{sequences_open_} + leases_open_ + spare_lists_.size();
  TANDEM_CHECK(lists <= uint64_t{sequences_max_} + leases_max_, "a page list is lost");
  TANDEM_CHECK(pages_quarantined_ <= pool_.held_count(), "a page in quarantine is not held");
  if (index_ == nullptr) {
    TANDEM_CHECK(pool_.cached_count() == 0, "pages are cached without prefix caching");
    return;
  }
  index_->check_invariants();

  std::vector<uint64_t> child_holders(pool_.total(), 0);
  for (uint32_t i = 0; i < pool_.total(); ++i) {
    PageId page{i};
    if (index_->contains(page)) {
      bool is_free = pool_.holders(page) == 0 && !pool_.is_cached(page);
      TANDEM_CHECK(!is_free, "a free page is matchable");
      auto parent = index_->parent_page(page);
      if (parent) child_holders[parent->value] += pool_.holders(page);
    } else {
      TANDEM_CHECK(!pool_.is_cached(page), "a cached page cannot be matched");
      TANDEM_CHECK(pool_.holders(page) <= 1 + leases_open_, "a page that is not indexed is shared");
    }
  }
  for (uint32_t i = 0; i < pool_.total(); ++i) {
    TANDEM_CHECK(child_holders[i] <= pool_.holders(PageId{i}),
                 "a child is held without its parent");
  }

  std::vector<bool> seen(pool_.total(), false);
  for (PageId page : pool_.cached_pages()) {
    auto parent = index_->parent_page(page);
    TANDEM_CHECK(!parent || !seen[parent->value], "a parent would be evicted before its child");
    seen[page.value] = true;
  }
}

}  // namespace tandem::kv
