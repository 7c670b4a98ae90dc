#include "apps/reshard_moves.h"

namespace tandem::apps {
namespace {

constexpr uint32_t kPageTokens = 256;
constexpr uint32_t kHeadDim = 128;

kv::KvLayout layout_over(uint32_t ranks) {
  return {.element = kv::KvElement::kBF16,
          .layers = ReshardShape::kPools / 2,
          .kv_heads = ReshardShape::kRanks,
          .head_dim = kHeadDim,
          .page_tokens = kPageTokens,
          .pages_total = ReshardShape::kPages,
          .rank_heads = kv::KvLayout::even_heads(ReshardShape::kRanks, ranks)};
}

}  // namespace

Result<std::vector<ReshardMove>> plan_reshard(Reshard onto) {
  const uint32_t sequences = onto == Reshard::kDataParallel ? ReshardShape::kRanks : 1;
  const uint32_t pages = ReshardShape::kPages / sequences;
  const kv::KvLayout source = layout_over(ReshardShape::kRanks);
  const kv::KvLayout target = layout_over(onto == Reshard::kEqual ? ReshardShape::kRanks : 1);
  std::vector<ReshardMove> moves;
  for (uint32_t sequence = 0; sequence < sequences; ++sequence) {
    ReshardMove move{.plan = TANDEM_TRY(kv::TransferPlan::create(
                         source, target, {.tokens = {0, pages * kPageTokens}})),
                     .target_first = sequence,
                     .source_pages = {},
                     .target_pages = {}};
    for (uint32_t page = 0; page < pages; ++page) {
      move.source_pages.push_back(PageId{sequence * pages + page});
      move.target_pages.push_back(PageId{page});
    }
    moves.push_back(std::move(move));
  }
  return moves;
}

}  // namespace tandem::apps
