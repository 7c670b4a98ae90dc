#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/ids.h"
#include "base/result.h"
#include "kv/kv_layout.h"
#include "kv/token_range.h"

namespace tandem::kv {

/// What one source rank sends to one target rank: these heads, which both hold.
struct PlanLink {
  uint32_t source_rank = 0;
  uint32_t target_rank = 0;
  HeadRange heads;           ///< of the whole model
  uint32_t source_head = 0;  ///< place of heads.first among the source rank's heads
  uint32_t target_head = 0;  ///< and among the target rank's
  uint64_t source_page_bytes = 0;
  uint64_t target_page_bytes = 0;
};

/// One contiguous write between two pools of the same (layer, K|V): offsets are from their starts.
struct PageCopy {
  uint64_t source_offset = 0;
  uint64_t target_offset = 0;
  uint64_t bytes = 0;
};

/// Counted writes that a target rank gets.
struct Arrivals {
  uint64_t copies = 0;    ///< of K and V
  uint64_t sidecars = 0;  ///< one per (link, layer): its records (sidecar.h)
  uint64_t total() const { return copies + sidecars; }
};

/// Who sends what to whom when the K and V of one sequence's `tokens` go from one layout to
/// another, and when. A pure value of its arguments, so that both sides compute the same one.
///
/// The unit is the **slice**: of one (layer, K|V), the tokens of one target page that one link
/// carries. Slices are numbered in token order and are the same for every link, layer and K|V. A
/// slice is sent as a whole once its last token is computed. So what may be sent is always a first
/// part of the slices, and how much is sent in all depends neither on the chunks of the computation
/// nor on what the source had cached.
///
/// Every valid byte of the target is in exactly one copy. Page lists, where asked for, begin with
/// the page that holds `tokens.first`.
///
/// Holds only its links: slices and copies are computed when asked for.
class TransferPlan {
 public:
  struct Options {
    TokenRange tokens;    ///< [m, n-1): behind the target's own prefix, without the last token
    uint32_t spread = 0;  ///< any number; where ranks hold copies, other numbers choose others
  };
  /// Both layouts valid, or an error names the field; they must match (check_match).
  static Result<TransferPlan> create(const KvLayout& source, const KvLayout& target,
                                     const Options& options);

  TokenRange tokens() const { return tokens_; }
  bool empty() const { return tokens_.empty(); }  ///< nothing to send: no hand-off
  std::span<const PlanLink> links() const { return links_; }
  uint32_t layers() const { return layers_; }
  PageRange source_pages() const { return pages_of(source_page_tokens_); }
  PageRange target_pages() const { return pages_of(target_page_tokens_); }

  uint32_t slices_count() const { return target_pages().count(); }
  TokenRange slice_tokens(uint32_t slice) const;
  /// Bytes of a slice: what its digest covers.
  uint64_t slice_bytes(const PlanLink& link, uint32_t slice) const;
  /// Slices [0, result) may be sent once the K and V of the sequence's first `tokens_computed`
  /// tokens, cached ones included, are in the source's pages.
  uint32_t slices_ready(uint32_t tokens_computed) const;

  /// Of one (layer, K|V): the copies of all slices, and of slices [first, end).
  uint64_t copies_count(const PlanLink& link) const;
  uint64_t copies_count(const PlanLink& link, uint32_t first_slice, uint32_t end_slice) const;
  Arrivals arrivals(uint32_t target_rank) const;  ///< of all layers

  /// kInvalidArgument unless the pages are as many as needed and within the pools. For a list that
  /// a peer sent, before copies are made from it.
  Result<void> check_target_pages(std::span<const PageId> target) const;
  Result<void> check_pages(std::span<const PageId> source, std::span<const PageId> target) const;

  struct Pages {
    std::span<const PageId> source, target;
  };
  /// Calls visit(PageCopy) for each copy of a slice; the same for every layer and K|V.
  template <typename Visit>
  void for_each_copy(const PlanLink& link, uint32_t slice, const Pages& pages, Visit&& visit) const;

 private:
  /// Tokens that are contiguous on both sides.
  struct Run {
    TokenRange tokens;
    bool is_page;  // on both sides: then its heads are contiguous, too
  };
  TransferPlan() = default;
  void add_links(const KvLayout& source, const KvLayout& target, uint32_t target_rank,
                 uint32_t spread);
  PageRange pages_of(uint32_t page_tokens) const;
  Run run_at(uint32_t position, uint32_t end) const;

  TokenRange tokens_;
  uint32_t layers_ = 0;
  uint64_t token_bytes_ = 0;  // of one head
  uint32_t source_page_tokens_ = 0;
  uint32_t target_page_tokens_ = 0;
  uint32_t source_pages_total_ = 0;
  uint32_t target_pages_total_ = 0;
  std::vector<PlanLink> links_;  // by target rank, then by head
};

template <typename Visit>
void TransferPlan::for_each_copy(const PlanLink& link, uint32_t slice, const Pages& pages,
                                 Visit&& visit) const {
  const TokenRange wanted = slice_tokens(slice);
  const uint64_t source_head_bytes = source_page_tokens_ * token_bytes_;
  const uint64_t target_head_bytes = target_page_tokens_ * token_bytes_;
  const uint64_t target_page = pages.target[slice].value;
  for (uint32_t position = wanted.first; position < wanted.end;) {
    const Run run = run_at(position, wanted.end);
    const uint64_t source_page =
        pages.source[position / source_page_tokens_ - source_pages().first].value;
    PageCopy copy{.source_offset = source_page * link.source_page_bytes +
                                   link.source_head * source_head_bytes +
                                   position % source_page_tokens_ * token_bytes_,
                  .target_offset = target_page * link.target_page_bytes +
                                   link.target_head * target_head_bytes +
                                   position % target_page_tokens_ * token_bytes_,
                  .bytes = run.tokens.count() * token_bytes_};
    if (run.is_page) {
      copy.bytes *= link.heads.count();
      visit(copy);
    } else {
      for (uint32_t head = 0; head < link.heads.count(); ++head) {
        visit(copy);
        copy.source_offset += source_head_bytes;
        copy.target_offset += target_head_bytes;
      }
    }
    position = run.tokens.end;
  }
}

}  // namespace tandem::kv
