// Goal: the plan sends each valid byte once, to its place, as soon as it may and not before, in as
// many writes as it said, for any sharding and any page sizes (contracts: hand-off; field cases A8,
// A11, A13, A18, A31). Method: random layouts, ranges and chunks; every copy is made between real
// pools whose numbers name their (layer, K|V, head, token, dim), the source's only when they are
// computed; then every byte of the target is looked at. Another seed: --gtest_random_seed=N.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <map>
#include <random>
#include <utility>

#include "kv/testing/plan_layouts.h"
#include "kv/transfer_plan.h"

namespace tandem::kv {
namespace {

using testing::layout_of;
using testing::plan_of;

/// What the K and V pools of one group hold, and how often each byte was written.
class Pools {
 public:
  Pools(const KvLayout& layout, uint32_t tokens, std::mt19937_64& random)
      : layout_(layout), page_list_((tokens + layout.page_tokens - 1) / layout.page_tokens) {
    std::vector<PageId> all(layout.pages_total);
    for (uint32_t i = 0; i < layout.pages_total; ++i) all[i] = PageId{i};
    std::shuffle(all.begin(), all.end(), random);
    std::copy_n(all.begin(), page_list_.size(), page_list_.begin());
    for (uint32_t rank = 0; rank < layout.ranks_count(); ++rank) {
      for (uint32_t pool = 0; pool < 2 * layout.layers; ++pool) {
        bytes_.emplace_back(layout.pool_bytes(rank), kPoison);
        writes_.emplace_back(layout.pool_bytes(rank), 0);
      }
    }
  }

  std::span<const PageId> pages(PageRange range) const {
    return std::span(page_list_).subspan(range.first, range.count());
  }
  std::vector<uint8_t>& bytes(uint32_t rank, uint32_t pool) {
    return bytes_[rank * 2 * layout_.layers + pool];
  }
  std::vector<uint8_t>& writes(uint32_t rank, uint32_t pool) {
    return writes_[rank * 2 * layout_.layers + pool];
  }

  /// Calls visit(rank, pool, byte offset, code byte) for all bytes of tokens.
  template <typename Visit>
  void for_each_byte(TokenRange tokens, Visit visit) const {
    const uint64_t element = element_bytes(layout_.element);
    for (uint32_t rank = 0; rank < layout_.ranks_count(); ++rank) {
      const HeadRange heads = layout_.rank_heads[rank];
      for (uint32_t pool = 0; pool < 2 * layout_.layers; ++pool) {
        for (uint32_t head = heads.first; head < heads.end; ++head) {
          for (uint32_t token = tokens.first; token < tokens.end; ++token) {
            const uint64_t row =
                (uint64_t{page_list_[token / layout_.page_tokens].value} * heads.count() + head -
                 heads.first) *
                    layout_.page_tokens +
                token % layout_.page_tokens;
            for (uint32_t dim = 0; dim < layout_.head_dim; ++dim) {
              const uint64_t code = code_of(pool, head, token, dim);
              for (uint64_t byte = 0; byte < element; ++byte) {
                visit(rank, pool, (row * layout_.head_dim + dim) * element + byte,
                      static_cast<uint8_t>(code >> (8 * byte)));
              }
            }
          }
        }
      }
    }
  }

  void compute(TokenRange tokens) {
    for_each_byte(tokens, [&](uint32_t rank, uint32_t pool, uint64_t at, uint8_t code) {
      bytes(rank, pool)[at] = code;
    });
  }

  void expect_exactly(TokenRange tokens) {
    for_each_byte(tokens, [&](uint32_t rank, uint32_t pool, uint64_t at, uint8_t code) {
      ASSERT_EQ(writes(rank, pool)[at], 1) << "rank " << rank << " pool " << pool << " byte " << at;
      ASSERT_EQ(bytes(rank, pool)[at], code)
          << "rank " << rank << " pool " << pool << " byte " << at;
      writes(rank, pool)[at] = 0;
    });
    for (const auto& writes : writes_) {
      ASSERT_EQ(std::ranges::count(writes, 0), static_cast<ptrdiff_t>(writes.size()))
          << "something else was written";
    }
  }

 private:
  static constexpr uint8_t kPoison = 0xa5;
  static uint64_t code_of(uint32_t pool, uint32_t head, uint32_t token, uint32_t dim) {
    uint64_t code = pool;
    for (const uint64_t part : {head, token, dim}) code = code * 1'000'003 + part + 1;
    return code * 0x9e3779b97f4a7c15u >> 32;
  }

  KvLayout layout_;
  std::vector<PageId> page_list_;
  std::vector<std::vector<uint8_t>> bytes_;   // [rank * pools + pool]
  std::vector<std::vector<uint8_t>> writes_;  // the same
};

/// One hand-off, as the source would run it: its cached tokens at once, then chunk by chunk and
/// layer by layer, every slice as soon as it is ready.
class Transfer {
 public:
  Transfer(const KvLayout& source, const KvLayout& target, const TransferPlan& plan,
           std::mt19937_64& random)
      : source_layout_(source),
        target_layout_(target),
        plan_(plan),
        random_(random),
        source_(source, plan.tokens().end, random),
        target_(target, plan.tokens().end, random),
        sent_(source.layers, 0) {}

  void run() {
    const uint32_t end = plan_.tokens().end;
    const PageRange pages = plan_.source_pages();
    ASSERT_TRUE(plan_.check_pages(source_.pages(pages), target_.pages(plan_.target_pages())).ok());
    uint32_t computed = static_cast<uint32_t>(random_() % (end + 1));
    source_.compute({0, computed});
    send_ready(computed);
    while (computed < end) {
      const uint32_t chunk = 1 + static_cast<uint32_t>(random_() % (end - computed));
      source_.compute({computed, computed + chunk});
      computed += chunk;
      if (random_() % 4 != 0) send_ready(computed);  // else a step's progress is not seen
    }
    send_ready(end);
    const uint32_t slices = plan_.slices_count();
    const auto middle = static_cast<uint32_t>(random_() % (slices + 1));
    for (const PlanLink& link : plan_.links()) {
      EXPECT_EQ(plan_.copies_count(link, 0, middle) + plan_.copies_count(link, middle, slices),
                plan_.copies_count(link));
    }
    target_.expect_exactly(plan_.tokens());
    for (uint32_t rank = 0; rank < target_layout_.ranks_count(); ++rank) {
      ASSERT_EQ(arrived_[rank], plan_.arrivals(rank).copies) << "rank " << rank;
    }
  }

 private:
  void send_ready(uint32_t computed) {
    const uint32_t ready = plan_.slices_ready(computed);
    if (ready < plan_.slices_count()) {
      // Not one slice is held back longer than it must be.
      ASSERT_GT(plan_.slice_tokens(ready).end, computed);
    }
    for (uint32_t layer = 0; layer < source_layout_.layers; ++layer) {
      for (; sent_[layer] < ready; ++sent_[layer]) send(layer, sent_[layer]);
    }
  }

  void send(uint32_t layer, uint32_t slice) {
    for (const PlanLink& link : plan_.links()) {
      for (uint32_t pool : {2 * layer, 2 * layer + 1}) {
        const auto& source = source_.bytes(link.source_rank, pool);
        auto& target = target_.bytes(link.target_rank, pool);
        auto& writes = target_.writes(link.target_rank, pool);
        uint64_t bytes = 0;
        uint64_t copies = 0;
        const TransferPlan::Pages pages{source_.pages(plan_.source_pages()),
                                        target_.pages(plan_.target_pages())};
        plan_.for_each_copy(link, slice, pages, [&](const PageCopy& copy) {
          ASSERT_LE(copy.source_offset + copy.bytes, source.size());
          ASSERT_LE(copy.target_offset + copy.bytes, target.size());
          std::memcpy(&target[copy.target_offset], &source[copy.source_offset], copy.bytes);
          for (uint64_t i = 0; i < copy.bytes; ++i) ++writes[copy.target_offset + i];
          ++arrived_[link.target_rank];
          bytes += copy.bytes;
          ++copies;
        });
        EXPECT_EQ(copies, plan_.copies_count(link, slice, slice + 1));
        EXPECT_EQ(bytes, plan_.slice_bytes(link, slice));
      }
    }
  }

  const KvLayout& source_layout_;
  const KvLayout& target_layout_;
  const TransferPlan& plan_;
  std::mt19937_64& random_;
  Pools source_;
  Pools target_;
  std::vector<uint32_t> sent_;            // slices, per layer
  std::map<uint32_t, uint64_t> arrived_;  // copies, per target rank
};

class TransferPlanProperty : public ::testing::Test {
 protected:
  void SetUp() override { std::cout << "seed " << GTEST_FLAG_GET(random_seed) << '\n'; }
  uint32_t number(uint32_t end) { return static_cast<uint32_t>(random_() % end); }
  template <typename T, size_t N>
  T one_of(const T (&values)[N]) {
    return values[number(N)];
  }

  std::vector<HeadRange> draw_ranks(uint32_t kv_heads) {
    if (number(4) == 0) {  // uneven shares, and some rank twice
      std::vector<HeadRange> ranges;
      for (uint32_t first = 0; first < kv_heads;) {
        const uint32_t end = first + 1 + number(kv_heads - first);
        ranges.insert(ranges.end(), 1 + number(2), HeadRange{first, end});
        first = end;
      }
      return ranges;
    }
    constexpr uint32_t kRanks[] = {1, 2, 3, 4, 8};
    for (;;) {
      const uint32_t ranks = one_of(kRanks);
      if (kv_heads % ranks == 0 || ranks % kv_heads == 0) {
        return KvLayout::even_heads(kv_heads, ranks);
      }
    }
  }

  void run_one() {
    KvLayout source{.element = number(2) == 0 ? KvElement::kBF16 : KvElement::kF32,
                    .layers = 1 + number(3),
                    .kv_heads = 1 + number(8),
                    .head_dim = 1 + number(4)};
    source.mtp_layers = number(source.layers);
    KvLayout target = source;
    TokenRange tokens;
    tokens.end = 1 + number(number(2) == 0 ? 12 : 150);
    tokens.first = number(tokens.end);
    for (KvLayout* layout : {&source, &target}) {
      constexpr uint32_t kPages[] = {1, 2, 3, 5, 7, 8, 16, 32, 48, 64};
      layout->page_tokens = one_of(kPages);
      layout->pages_total =
          (tokens.end + layout->page_tokens - 1) / layout->page_tokens + number(4);
      layout->rank_heads = draw_ranks(source.kv_heads);
    }
    if (number(3) == 0) source.page_tokens = target.page_tokens;
    source.pages_total = tokens.end / source.page_tokens + 1 + number(4);
    SCOPED_TRACE(::testing::Message()
                 << source.ranks_count() << " -> " << target.ranks_count() << " ranks, pages of "
                 << source.page_tokens << " -> " << target.page_tokens << ", tokens ["
                 << tokens.first << ", " << tokens.end << "), " << source.kv_heads << " heads");
    const TransferPlan plan = plan_of(source, target, tokens, number(100));
    Transfer(source, target, plan, random_).run();
  }

  std::mt19937_64 random_{static_cast<uint64_t>(GTEST_FLAG_GET(random_seed))};
};

TEST_F(TransferPlanProperty, EveryByteOnceAndNothingElse) {
  for (int i = 0; i < 10000 && !HasFailure(); ++i) run_one();
}

TEST_F(TransferPlanProperty, EveryPairOfDegreesAndThePageSizesOfTheIssue) {
  constexpr std::pair<uint32_t, uint32_t> kPageSizes[] = {{16, 16}, {16, 32}, {32, 16}, {48, 64}};
  for (uint32_t kv_heads : {3u, 4u, 8u}) {
    for (uint32_t from : {1u, 2u, 3u, 4u, 8u}) {
      for (uint32_t to : {1u, 2u, 3u, 4u, 8u}) {
        const auto fits = [&](uint32_t n) { return kv_heads % n == 0 || n % kv_heads == 0; };
        if (!fits(from) || !fits(to)) continue;
        for (const auto& [source_page, target_page] : kPageSizes) {
          const KvLayout source = layout_of(kv_heads, from, source_page);
          const KvLayout target = layout_of(kv_heads, to, target_page);
          const TransferPlan plan = plan_of(source, target, {2 * target_page, 229});
          Transfer(source, target, plan, random_).run();
          ASSERT_FALSE(HasFailure()) << from << " -> " << to << ", pages " << source_page << " -> "
                                     << target_page << ", heads " << kv_heads;
        }
      }
    }
  }
}

// A14 of the field cases waits for recurrent state; the lengths are those of A18.
TEST_F(TransferPlanProperty, LengthsAroundPages) {
  constexpr uint32_t kPage = 16;
  for (uint32_t end : {1u, kPage - 1, kPage, kPage + 1, 2 * kPage, 2 * kPage + 1}) {
    const KvLayout source = layout_of(4, 4, kPage);
    const KvLayout target = layout_of(4, 1, 2 * kPage);
    const TransferPlan plan = plan_of(source, target, {0, end});
    Transfer(source, target, plan, random_).run();
    ASSERT_FALSE(HasFailure()) << end;
  }
}

}  // namespace
}  // namespace tandem::kv
