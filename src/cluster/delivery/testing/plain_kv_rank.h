#pragma once

#include <algorithm>
#include <vector>

#include "engine/kv_rank.h"
#include "kv/hash.h"
#include "kv/kv_layout.h"

namespace tandem::cluster::testing {

/// K and V of one rank of a layout in plain memory.
class PlainKvRank final : public engine::KvRank {
 public:
  PlainKvRank(const kv::KvLayout& layout, uint32_t rank)
      : layout_(layout), rank_(rank), bytes_(2 * layout.layers * layout.pool_bytes(rank)) {}

  std::span<std::byte> memory() override { return bytes_; }
  Result<void> digest(const Slices& slices, std::span<uint64_t> digests) override {
    const uint32_t first = slices.tokens.first / slices.slice_tokens;
    for (uint32_t i = 0; i < digests.size(); ++i) {
      const uint32_t begin = (first + i) * slices.slice_tokens;
      digests[i] = digest_of(slices, {std::max(begin, slices.tokens.first),
                                      std::min(begin + slices.slice_tokens, slices.tokens.end)});
    }
    return {};
  }

 private:
  uint64_t digest_of(const Slices& slices, kv::TokenRange tokens) const {
    const std::byte* pool =
        bytes_.data() + (2 * slices.layer + (slices.is_value ? 1 : 0)) * layout_.pool_bytes(rank_);
    const uint32_t page_tokens = layout_.page_tokens;
    const uint32_t heads = layout_.rank_heads[rank_].count();
    std::vector<std::byte> all;
    for (uint32_t head = 0; head < slices.heads_count; ++head) {
      for (uint32_t token = tokens.first; token < tokens.end; ++token) {
        const uint32_t place = token / page_tokens - slices.tokens.first / page_tokens;
        const uint64_t row =
            (uint64_t{slices.pages[place].value} * heads + slices.first_head + head) * page_tokens +
            token % page_tokens;
        const std::byte* at = pool + row * layout_.token_bytes();
        all.insert(all.end(), at, at + layout_.token_bytes());
      }
    }
    return kv::xxh3_hash(all, 0);
  }

  const kv::KvLayout layout_;
  const uint32_t rank_;
  std::vector<std::byte> bytes_;
};

}  // namespace tandem::cluster::testing
