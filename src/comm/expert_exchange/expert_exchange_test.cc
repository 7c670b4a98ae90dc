// Goal: however tokens and experts are spread, every token gets the bits that ops/moe_combine gives
// on one rank, both for tokens that differ per rank (exchange, with another placement at every
// call, and experts that nobody holds) and for tokens that all ranks hold (select, combine; bits
// only for ranges that are subtrees), and the bytes are those of the headers. Method: an "expert"
// is x * (id + 1) + id, computed in plain code from what arrived; routing is random, with ranks
// without tokens and with all tokens to one expert; outputs that must be written start as NaN, y
// starts random.
#include "comm/expert_exchange/expert_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "comm/expert_combine/expert_combine.h"
#include "comm/expert_combine/weighted_rows.h"
#include "comm/expert_select/expert_select.h"
#include "comm/plan_experts.h"
#include "comm/testing/run_ranks.h"
#include "ops/group_tokens/group_tokens.h"
#include "ops/moe_combine/moe_combine.h"

namespace tandem::comm {
namespace {

using testing::ElementsAre;

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

float expert_output(float x, int32_t expert) {
  return x * static_cast<float>(expert + 1) + static_cast<float>(expert) * 0.37f;
}

struct Case {
  int32_t experts = 0;
  int64_t hidden = 0;
  int64_t k = 0;
  DType wire = DType::kF32;
  DType dispatch = DType::kF32;
  int32_t redundant = 0;
};

/// The tokens of one rank in one call, the same whoever makes them.
struct Tokens {
  int64_t count = 0;
  std::vector<float> x, weights, y;  // y as it is before the call
  std::vector<int32_t> ids;

  Tokens(const Case& c, uint64_t seed, int64_t tokens) : count(tokens) {
    std::mt19937 random(static_cast<unsigned>(seed));
    for (int64_t i = 0; i < tokens * c.hidden; ++i) {
      const float value = test_value(seed, static_cast<uint64_t>(i));
      x.push_back(c.dispatch == DType::kBF16 ? to_float(to_bf16(value)) : value);
      y.push_back(test_value(seed + 1000, static_cast<uint64_t>(i)));
    }
    for (int64_t t = 0; t < tokens; ++t) {
      std::set<int32_t> chosen;
      // Every third call sends all tokens to the same experts.
      if (seed % 3 == 0) random.seed(1);
      while (chosen.size() < static_cast<size_t>(c.k)) {
        chosen.insert(static_cast<int32_t>(random() % static_cast<unsigned>(c.experts)));
      }
      ids.insert(ids.end(), chosen.begin(), chosen.end());
      for (int64_t j = 0; j < c.k; ++j) {
        weights.push_back(test_value(seed + 2000, static_cast<uint64_t>(t * c.k + j)));
      }
    }
  }
};

template <typename T>
TensorView<T, 2> matrix(std::vector<T>& data, int64_t rows, int64_t columns) {
  return TensorView<T, 2>::make(data.data(), {rows, columns});
}

/// What one rank computes with the ops alone.
std::vector<float> on_one_rank(const Case& c, Tokens tokens) {
  const auto stream = rank_stream();
  std::vector<int32_t> offsets(static_cast<size_t>(c.experts) + 1), source(tokens.ids.size()),
      row_of(tokens.ids.size());
  const auto ids = matrix(tokens.ids, tokens.count, c.k);
  EXPECT_TRUE(
      ops::group_tokens(
          *stream, {.expert_ids = ids,
                    .expert_offsets = TensorView<int32_t, 1>::make(offsets.data(), {c.experts + 1}),
                    .row_source = TensorView<int32_t, 1>::make(source.data(), {tokens.count * c.k}),
                    .row_of = matrix(row_of, tokens.count, c.k)})
          .ok());
  std::vector<float> rows(source.size() * static_cast<size_t>(c.hidden), kPoison);
  for (int32_t e = 0; e < c.experts; ++e) {
    for (int32_t r = offsets[static_cast<size_t>(e)]; r < offsets[static_cast<size_t>(e) + 1];
         ++r) {
      for (int64_t i = 0; i < c.hidden; ++i) {
        const auto token = static_cast<size_t>(source[static_cast<size_t>(r)]);
        rows[static_cast<size_t>(r * c.hidden + i)] = expert_output(
            tokens.x[token * static_cast<size_t>(c.hidden) + static_cast<size_t>(i)], e);
      }
    }
  }
  EXPECT_TRUE(ops::moe_combine(*stream, {.rows = matrix(rows, tokens.count * c.k, c.hidden),
                                         .row_of = matrix(row_of, tokens.count, c.k),
                                         .expert_ids = ids,
                                         .weights = matrix(tokens.weights, tokens.count, c.k),
                                         .wire = c.wire,
                                         .y = matrix(tokens.y, tokens.count, c.hidden)})
                  .ok());
  return tokens.y;
}

Result<void> expect_equal_bits(const std::vector<float>& got, const std::vector<float>& want,
                               uint64_t call) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(want[i])) {
      return make_error(Code::kInternal, "call " + std::to_string(call) + " differs at " +
                                             std::to_string(i) + ": " + std::to_string(got[i]) +
                                             " for " + std::to_string(want[i]));
    }
  }
  return {};
}

/// The results of this rank's experts, in the order of the rows.
std::vector<float> run_experts(const Case& c, std::span<const int32_t> experts,
                               TensorView<const float, 2> x,
                               TensorView<const int32_t, 1> row_source,
                               TensorView<const int32_t, 1> offsets) {
  const int32_t rows_count = offsets[offsets.size() - 1];
  std::vector<float> rows(static_cast<size_t>(rows_count * c.hidden), kPoison);
  for (int32_t e = 0; e + 1 < offsets.size(); ++e) {
    for (int32_t r = offsets[e]; r < offsets[e + 1]; ++r) {
      for (int64_t i = 0; i < c.hidden; ++i) {
        rows[static_cast<size_t>(r * c.hidden + i)] =
            expert_output(x.row(row_source[r])[i], experts[static_cast<size_t>(e)]);
      }
    }
  }
  return rows;
}

int64_t tokens_of(uint64_t call, int rank) {
  const uint64_t mixed = (call * 7 + static_cast<uint64_t>(rank)) * 2654435761u % 13;
  return mixed < 4 ? 0 : static_cast<int64_t>(mixed);  // ranks without tokens are normal
}

uint64_t seed_of(uint64_t call, int rank) {
  return call * 100 + static_cast<uint64_t>(rank);
}

/// The bytes that the header of the exchange promises for one rank's tokens and rows.
uint64_t bytes_promised(const Case& c, const ExpertPlacement& placement, uint64_t call, int self) {
  const auto bytes = [](DType type) { return static_cast<uint64_t>(dtype_bytes(type)); };
  const auto hidden = static_cast<uint64_t>(c.hidden);
  const uint64_t header = (16 + 4 * static_cast<uint64_t>(c.k) + 15) / 16 * 16;
  uint64_t sum = 8 * static_cast<uint64_t>(placement.ranks_count() - 1);
  for (int owner = 0; owner < placement.ranks_count(); ++owner) {
    const Tokens tokens(c, seed_of(call, owner), tokens_of(call, owner));
    for (int64_t t = 0; t < tokens.count; ++t) {
      std::set<int> targets;
      for (int64_t j = 0; j < c.k; ++j) {
        const int target = placement.server(tokens.ids[static_cast<size_t>(t * c.k + j)], owner);
        if (target == ExpertPlacement::kNone) continue;
        if (owner == self && target != self) targets.insert(target);
        if (owner != self && target == self) sum += hidden * bytes(c.wire);
      }
      sum += targets.size() * (header + hidden * bytes(c.dispatch));
    }
  }
  return sum;
}

/// Starts as the ranges; later calls have plans for random loads, and every fifth lacks an expert.
ExpertPlacement placement_of(const Case& c, int ranks, uint64_t call) {
  const ExpertPlacement start = ExpertPlacement::initial({c.experts, c.redundant, ranks}).value();
  if (call == 1) return start;
  std::mt19937 random(static_cast<unsigned>(call));
  std::vector<uint64_t> loads(static_cast<size_t>(c.experts));
  for (uint64_t& load : loads) load = random() % 1000;
  const ExpertPlacement plan = plan_experts(start, loads);
  if (call % 5 != 0) return plan;
  std::vector<int32_t> experts(plan.experts().begin(), plan.experts().end());
  const auto lost = static_cast<int32_t>(call) % c.experts;
  std::replace(experts.begin(), experts.end(), lost, ExpertPlacement::kNone);
  return plan.holding(experts);
}

/// Tokens whose experts are all held have the bits of one rank.
Result<void> check_exchanged(const Case& c, const ExpertPlacement& placement, const Tokens& tokens,
                             std::vector<float> want, uint64_t call) {
  for (int64_t t = 0; t < tokens.count; ++t) {
    const auto first = static_cast<size_t>(t * c.k);
    bool is_complete = true;
    for (size_t j = first; j < first + static_cast<size_t>(c.k); ++j) {
      is_complete = is_complete && placement.copies_count(tokens.ids[j]) > 0;
    }
    if (is_complete) continue;
    const auto row = static_cast<size_t>(t * c.hidden);
    std::copy_n(tokens.y.begin() + static_cast<int64_t>(row), c.hidden,
                want.begin() + static_cast<int64_t>(row));
  }
  return expect_equal_bits(tokens.y, want, call);
}

Result<void> exchange(SymmetricHeap& heap, const Case& c) {
  const auto stream = rank_stream();
  const int ranks = heap.ranks_count();
  auto moe = TANDEM_TRY(ExpertExchange::create(
      heap, {.tokens_max = 12,
             .hidden = c.hidden,
             .k = c.k,
             .dispatch = c.dispatch,
             .wire = c.wire,
             .slots_count = placement_of(c, ranks, 1).slots_count(heap.rank())}));
  for (uint64_t call = 1; call <= 12; ++call) {
    const ExpertPlacement placement = placement_of(c, ranks, call);
    Tokens tokens(c, seed_of(call, heap.rank()), tokens_of(call, heap.rank()));
    const auto want = on_one_rank(c, tokens);
    const uint64_t before = heap.counters().bytes_put;
    const auto ids = matrix(tokens.ids, tokens.count, c.k);
    const auto received =
        TANDEM_TRY(moe.dispatch(*stream, {.x = matrix(tokens.x, tokens.count, c.hidden),
                                          .expert_ids = ids,
                                          .placement = &placement}));
    auto rows = run_experts(c, placement.experts_of(heap.rank()), received.x, received.row_source,
                            received.expert_offsets);
    TANDEM_TRY(moe.combine(*stream, {.rows = matrix(rows, received.row_source.size(), c.hidden),
                                     .expert_ids = ids,
                                     .weights = matrix(tokens.weights, tokens.count, c.k),
                                     .y = matrix(tokens.y, tokens.count, c.hidden)}));
    TANDEM_TRY(check_exchanged(c, placement, tokens, want, call));
    EXPECT_EQ(heap.counters().bytes_put - before, bytes_promised(c, placement, call, heap.rank()));
  }
  return {};
}

TEST(ExpertExchange, HasTheBitsOfOneRankForAnyLayout) {
  for (int ranks : {1, 2, 3, 4, 8, 16}) {
    for (const Case& c : {Case{.experts = 16, .hidden = 24, .k = 4},
                          Case{.experts = 30, .hidden = 7, .k = 5, .wire = DType::kBF16},
                          Case{.experts = 128, .hidden = 600, .k = 8, .dispatch = DType::kBF16},
                          Case{.experts = 16,
                               .hidden = 32,
                               .k = 1,
                               .wire = DType::kBF16,
                               .dispatch = DType::kBF16}}) {
      SCOPED_TRACE(std::to_string(c.experts) + " experts on " + std::to_string(ranks) + " ranks");
      expect_ranks(ranks, 4 << 20, [&](SymmetricHeap& heap) { return exchange(heap, c); });
    }
  }
}

TEST(ExpertExchange, HasTheBitsOfOneRankWithCopiesOfExperts) {
  for (int ranks : {2, 3, 4, 8}) {
    for (const Case& c : {Case{.experts = 16, .hidden = 24, .k = 4, .redundant = 4},
                          Case{.experts = 7,
                               .hidden = 7,
                               .k = 3,
                               .wire = DType::kBF16,
                               .dispatch = DType::kBF16,
                               .redundant = 6},
                          Case{.experts = 4, .hidden = 16, .k = 2, .redundant = 4}}) {
      SCOPED_TRACE(std::to_string(c.experts) + "+" + std::to_string(c.redundant) + " experts on " +
                   std::to_string(ranks) + " ranks");
      expect_ranks(ranks, 4 << 20, [&](SymmetricHeap& heap) { return exchange(heap, c); });
    }
  }
}

Result<void> select_and_combine(SymmetricHeap& heap, const Case& c) {
  const auto stream = rank_stream();
  const auto ranges = TANDEM_TRY(ExpertRanges::balanced(c.experts, heap.ranks_count()));
  auto moe = TANDEM_TRY(ExpertCombine::create(heap, {.tokens_max = 12, .hidden = c.hidden}));
  const int32_t local = ranges.count(heap.rank());
  for (uint64_t call = 1; call <= 12; ++call) {
    Tokens tokens(c, call, tokens_of(call, 0));
    const auto want = on_one_rank(c, tokens);
    const int64_t pairs = tokens.count * c.k;
    const auto ids = matrix(tokens.ids, tokens.count, c.k);
    std::vector<int32_t> offsets(static_cast<size_t>(local) + 1, -7),
        source(static_cast<size_t>(pairs), -7), row_of(static_cast<size_t>(pairs), -7);
    const ExpertSelectArgs select = {
        .expert_ids = ids,
        .first_expert = ranges.first(heap.rank()),
        .expert_offsets = TensorView<int32_t, 1>::make(offsets.data(), {local + 1}),
        .row_source = TensorView<int32_t, 1>::make(source.data(), {pairs}),
        .row_of = matrix(row_of, tokens.count, c.k)};
    TANDEM_TRY(expert_select(*stream, select));
    const auto all = ExpertPlacement::initial({c.experts, 0, heap.ranks_count()}).value();
    auto rows =
        run_experts(c, all.experts_of(heap.rank()), matrix(tokens.x, tokens.count, c.hidden),
                    select.row_source, select.expert_offsets);
    TANDEM_TRY(moe.run(*stream, {.rows = matrix(rows, offsets.back(), c.hidden),
                                 .row_of = select.row_of,
                                 .expert_ids = ids,
                                 .weights = matrix(tokens.weights, tokens.count, c.k),
                                 .wire = c.wire,
                                 .y = matrix(tokens.y, tokens.count, c.hidden)}));
    TANDEM_TRY(expect_equal_bits(tokens.y, want, call));
  }
  return {};
}

TEST(ExpertCombine, HasTheBitsOfOneRankWhenRangesAreSubtrees) {
  for (int ranks : {1, 2, 4, 8, 16}) {
    for (const Case& c : {Case{.experts = 16, .hidden = 24, .k = 4},
                          Case{.experts = 128, .hidden = 600, .k = 8, .wire = DType::kBF16}}) {
      SCOPED_TRACE(std::to_string(c.experts) + " experts on " + std::to_string(ranks) + " ranks");
      EXPECT_TRUE(ExpertRanges::balanced(c.experts, ranks)->is_one_tree());
      expect_ranks(ranks, 4 << 20,
                   [&](SymmetricHeap& heap) { return select_and_combine(heap, c); });
    }
  }
}

TEST(ExpertCombine, ATokenOfOthersIsNeutral) {
  // Only a minus zero leaves a minus zero of another rank as it is.
  const auto stream = rank_stream();
  const std::vector<float> rows = {1, 2};
  std::vector<int32_t> row_of = {-1, -1, -1, 0}, ids = {0, 1, 0, 1};
  std::vector<float> weights = {1, 1, 1, 3}, y(4, kPoison);
  WeightedRowsArgs args = {.rows = reinterpret_cast<const std::byte*>(rows.data()),
                           .row_of = matrix(row_of, 2, 2),
                           .expert_ids = matrix(ids, 2, 2),
                           .weights = matrix(weights, 2, 2),
                           .y = matrix(y, 2, 2)};
  ASSERT_TRUE(weighted_rows(*stream, args).ok());
  EXPECT_THAT(y, ElementsAre(0, 0, 3, 6));
  EXPECT_TRUE(std::signbit(y[0]) && std::signbit(y[1]));
  y = {-0.0f, 5, 1, 1};
  args.accumulate = true;
  ASSERT_TRUE(weighted_rows(*stream, args).ok());
  EXPECT_THAT(y, ElementsAre(0, 5, 4, 7));
  EXPECT_TRUE(std::signbit(y[0]));
}

TEST(ExpertRanges, AreBalancedAndSayWhatTheyPromise) {
  const auto sizes = [](int32_t experts, int ranks) {
    const auto ranges = *ExpertRanges::balanced(experts, ranks);
    std::vector<int32_t> counts;
    for (int rank = 0; rank < ranks; ++rank) {
      counts.push_back(ranges.count(rank));
      for (int32_t e = ranges.first(rank); e < ranges.end(rank); ++e) {
        EXPECT_EQ(ranges.owner(e), rank);
      }
    }
    EXPECT_EQ(ranges.experts_count(), experts);
    return counts;
  };
  EXPECT_THAT(sizes(30, 8), ElementsAre(4, 4, 4, 4, 4, 4, 3, 3));
  EXPECT_THAT(sizes(128, 12), ElementsAre(11, 11, 11, 11, 11, 11, 11, 11, 10, 10, 10, 10));
  EXPECT_THAT(sizes(3, 3), ElementsAre(1, 1, 1));
  EXPECT_TRUE(ExpertRanges::balanced(30, 1)->is_one_tree());
  EXPECT_TRUE(ExpertRanges::balanced(3, 3)->is_one_tree());
  EXPECT_TRUE(ExpertRanges::balanced(15, 2)->is_one_tree());
  EXPECT_FALSE(ExpertRanges::balanced(24, 2)->is_one_tree());
  EXPECT_FALSE(ExpertRanges::balanced(30, 8)->is_one_tree());
  EXPECT_THAT(ExpertRanges::balanced(4, 5).error().what, testing::HasSubstr("at most 4"));
}

}  // namespace
}  // namespace tandem::comm
