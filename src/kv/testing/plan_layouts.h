#pragma once

#include <cstdint>

#include "kv/transfer_plan.h"

namespace tandem::kv::testing {

/// A small layout: two layers, one of them multi-token-prediction.
inline KvLayout layout_of(uint32_t kv_heads, uint32_t ranks, uint32_t page_tokens) {
  return {.element = KvElement::kBF16,
          .layers = 2,
          .mtp_layers = 1,
          .kv_heads = kv_heads,
          .head_dim = 3,
          .page_tokens = page_tokens,
          .pages_total = 64,
          .rank_heads = KvLayout::even_heads(kv_heads, ranks)};
}

inline TransferPlan plan_of(const KvLayout& source, const KvLayout& target, TokenRange tokens,
                            uint32_t spread = 0) {
  return TransferPlan::create(source, target, {.tokens = tokens, .spread = spread}).value();
}

}  // namespace tandem::kv::testing
