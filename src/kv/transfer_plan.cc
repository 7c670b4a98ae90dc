#include "kv/transfer_plan.h"

#include <fmt/format.h>

#include <numeric>

namespace tandem::kv {
namespace {

/// Multiples of `step` in (first, end).
uint64_t multiples_between(TokenRange range, uint64_t step) {
  return (range.end - 1) / step - range.first / step;
}

Result<void> check_list(const char* side, std::span<const PageId> pages, uint32_t needed,
                        uint32_t pages_total) {
  if (pages.size() != needed) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("kv transfer: {} {} pages are listed; {} are needed",
                                  pages.size(), side, needed));
  }
  for (const PageId page : pages) {
    if (page.value >= pages_total) {
      return make_error(Code::kInvalidArgument,
                        fmt::format("kv transfer: {} page {} is outside the pool of {} pages", side,
                                    page.value, pages_total));
    }
  }
  return {};
}

}  // namespace

Result<TransferPlan> TransferPlan::create(const KvLayout& source, const KvLayout& target,
                                          const Options& options) {
  TANDEM_TRY(validate(source));
  TANDEM_TRY(validate(target));
  TANDEM_TRY(check_match(source, target));
  TransferPlan plan;
  plan.tokens_ = options.tokens;
  plan.layers_ = source.layers;
  plan.token_bytes_ = source.token_bytes();
  plan.source_page_tokens_ = source.page_tokens;
  plan.target_page_tokens_ = target.page_tokens;
  plan.source_pages_total_ = source.pages_total;
  plan.target_pages_total_ = target.pages_total;
  if (plan.empty()) return plan;
  plan.links_.reserve(std::max(source.ranks_count(), target.ranks_count()));
  for (uint32_t rank = 0; rank < target.ranks_count(); ++rank) {
    plan.add_links(source, target, rank, options.spread);
  }
  return plan;
}

/// For each head that the target rank holds, one of the source ranks that hold it. Target ranks
/// take the copies in turn, so that all source ranks send.
void TransferPlan::add_links(const KvLayout& source, const KvLayout& target, uint32_t target_rank,
                             uint32_t spread) {
  const HeadRange wanted = target.rank_heads[target_rank];
  for (uint32_t head = wanted.first; head < wanted.end;) {
    const auto holds = [head](HeadRange heads) { return heads.first <= head && head < heads.end; };
    const auto copies =
        static_cast<uint64_t>(std::ranges::count_if(source.rank_heads, holds));  // >= 1: valid
    uint64_t skip = (uint64_t{spread} + target_rank) % copies;
    uint32_t source_rank = 0;
    for (;; ++source_rank) {
      if (holds(source.rank_heads[source_rank]) && skip-- == 0) break;
    }
    const HeadRange present = source.rank_heads[source_rank];
    const HeadRange heads{head, std::min(present.end, wanted.end)};
    links_.push_back({.source_rank = source_rank,
                      .target_rank = target_rank,
                      .heads = heads,
                      .source_head = head - present.first,
                      .target_head = head - wanted.first,
                      .source_page_bytes = source.page_bytes(source_rank),
                      .target_page_bytes = target.page_bytes(target_rank)});
    head = heads.end;
  }
}

PageRange TransferPlan::pages_of(uint32_t page_tokens) const {
  if (empty()) return {};
  return {tokens_.first / page_tokens, (tokens_.end - 1) / page_tokens + 1};
}

TokenRange TransferPlan::slice_tokens(uint32_t slice) const {
  TANDEM_CHECK(slice < slices_count(), "a slice of this plan");
  // 64 bits: the last page may end behind the last number that 32 bits hold.
  const uint64_t page = uint64_t{target_pages().first} + slice;
  const uint64_t end = std::min<uint64_t>((page + 1) * target_page_tokens_, tokens_.end);
  return {std::max(static_cast<uint32_t>(page * target_page_tokens_), tokens_.first),
          static_cast<uint32_t>(end)};
}

uint64_t TransferPlan::slice_bytes(const PlanLink& link, uint32_t slice) const {
  return uint64_t{link.heads.count()} * slice_tokens(slice).count() * token_bytes_;
}

uint32_t TransferPlan::slices_ready(uint32_t tokens_computed) const {
  if (empty() || tokens_computed <= tokens_.first) return 0;
  if (tokens_computed >= tokens_.end) return slices_count();
  return tokens_computed / target_page_tokens_ - target_pages().first;
}

TransferPlan::Run TransferPlan::run_at(uint32_t position, uint32_t end) const {
  const uint32_t source_left = source_page_tokens_ - position % source_page_tokens_;
  const uint32_t count = std::min(source_left, end - position);
  return {.tokens = {position, position + count},
          .is_page = count == source_page_tokens_ && count == target_page_tokens_};
}

uint64_t TransferPlan::copies_count(const PlanLink& link) const {
  return copies_count(link, 0, slices_count());
}

uint64_t TransferPlan::copies_count(const PlanLink& link, uint32_t first_slice,
                                    uint32_t end_slice) const {
  if (first_slice == end_slice) return 0;
  const TokenRange tokens{slice_tokens(first_slice).first, slice_tokens(end_slice - 1).end};
  const uint64_t heads = link.heads.count();
  // Every page border cuts, and one that both sides have cuts once.
  const uint64_t common = std::lcm(uint64_t{source_page_tokens_}, uint64_t{target_page_tokens_});
  const uint64_t runs = 1 + multiples_between(tokens, source_page_tokens_) +
                        multiples_between(tokens, target_page_tokens_) -
                        multiples_between(tokens, common);
  if (source_page_tokens_ != target_page_tokens_) return runs * heads;
  const uint64_t first_whole = (uint64_t{tokens.first} + common - 1) / common;
  const uint64_t end_whole = tokens.end / common;
  const uint64_t whole = end_whole > first_whole ? end_whole - first_whole : 0;
  return whole + (runs - whole) * heads;
}

Arrivals TransferPlan::arrivals(uint32_t target_rank) const {
  Arrivals arrivals;
  for (const PlanLink& link : links_) {
    if (link.target_rank != target_rank) continue;
    arrivals.copies += uint64_t{layers_} * 2 * copies_count(link);
    arrivals.sidecars += layers_;
  }
  return arrivals;
}

Result<void> TransferPlan::check_pages(std::span<const PageId> source,
                                       std::span<const PageId> target) const {
  TANDEM_TRY(check_list("source", source, source_pages().count(), source_pages_total_));
  return check_target_pages(target);
}

Result<void> TransferPlan::check_target_pages(std::span<const PageId> target) const {
  return check_list("target", target, target_pages().count(), target_pages_total_);
}

}  // namespace tandem::kv
