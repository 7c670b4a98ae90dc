// Goal: moe_combine adds to y exactly the binary tree over expert ids of moe_combine.h, in f32 bit
// by bit; ranks that hold aligned ranges of experts add up to the same bits; and a row's bits are
// its own.
// Method: the tree as a recursion over halves of the id range, one rounded f32 operation at a time.
// Against float64 each term of the sum is rounded once (twice with a bf16 wire) and passes at most
// one addition per level and the one into y: (2 + levels) f32 roundings of the sum of magnitudes.
#include "ops/moe_combine/moe_combine.h"

#include <bit>
#include <optional>

#include "ops/testing/ops_test_support.h"

namespace tandem::ops {
namespace {

using namespace testing;

/// What the experts computed for some tokens, and which y it is added to.
struct Problem {
  Problem(int64_t tokens, int64_t chosen, int64_t experts_count, int64_t hidden_count,
          Random& random)
      : k(chosen),
        experts(static_cast<int32_t>(experts_count)),
        hidden(hidden_count),
        rows(tokens * k, hidden, random.normal(tokens * k * hidden)),
        row_of(tokens, k),
        ids(tokens, k),
        weights(tokens, k, random.normal(tokens * k)),
        y(tokens, hidden, random.normal(tokens * hidden)) {
    std::vector<int32_t> order(static_cast<size_t>(tokens * k));
    std::iota(order.begin(), order.end(), 0);
    random.shuffle(order);
    for (int64_t t = 0; t < tokens; ++t) {
      const auto some = random.choose(k, experts);
      std::copy(some.begin(), some.end(), ids.row(t));
      std::copy_n(&order[static_cast<size_t>(t * k)], k, row_of.row(t));
    }
  }
  int64_t tokens() const { return y.rows(); }
  const float* expert_row(int64_t t, int64_t j) const { return rows.row(row_of.row(t)[j]); }

  int64_t k;
  int32_t experts;
  int64_t hidden;
  Matrix<float> rows;
  Matrix<int32_t> row_of;
  Matrix<int32_t> ids;
  Matrix<float> weights;
  Matrix<float> y;
};

Matrix<float> run(Stream& stream, const Problem& p, DType wire) {
  Matrix<float> y = p.y;
  EXPECT_TRUE(moe_combine(stream, {.rows = p.rows.view(),
                                   .row_of = p.row_of.view(),
                                   .expert_ids = p.ids.view(),
                                   .weights = p.weights.view(),
                                   .wire = wire,
                                   .y = y.view()})
                  .ok());
  EXPECT_TRUE(y.margins_untouched());
  return y;
}

/// The sum of column c over the experts [first, first + count), count a power of two; nothing
/// where none of them was chosen.
std::optional<float> tree(const Problem& p, DType wire, int64_t t, int64_t c, int32_t first,
                          int32_t count) {
  if (count == 1) {
    const int32_t* ids = p.ids.row(t);
    const int32_t* found = std::find(ids, ids + p.k, first);
    if (found == ids + p.k) return std::nullopt;
    const int64_t j = found - ids;
    return rounded(wire, p.expert_row(t, j)[c]) * p.weights.row(t)[j];
  }
  const auto low = tree(p, wire, t, c, first, count / 2);
  const auto high = tree(p, wire, t, c, first + count / 2, count / 2);
  if (!low) return high;
  if (!high) return low;
  return *low + *high;
}

void expect_tree(const Problem& p, cpu::MatrixPath path) {
  SCOPED_TRACE(std::to_string(p.tokens()) + " tokens, " + std::to_string(p.k) + " of " +
               std::to_string(p.experts) + ", hidden " + std::to_string(p.hidden));
  Cpu cpu(2, path);
  const auto leaves = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(p.experts)));
  const double roundings = 2 + std::log2(leaves);
  for (DType wire : {DType::kF32, DType::kBF16}) {
    const Matrix<float> y = run(*cpu.stream, p, wire);
    for (int64_t t = 0; t < p.tokens(); ++t) {
      for (int64_t c = 0; c < p.hidden; ++c) {
        const float expected = p.y.row(t)[c] + *tree(p, wire, t, c, 0, leaves);
        ASSERT_EQ(std::bit_cast<uint32_t>(y.row(t)[c]), std::bit_cast<uint32_t>(expected))
            << "token " << t << " column " << c << " wire " << dtype_name(wire);
        double sum = p.y.row(t)[c], magnitude = std::abs(sum);
        double wire_error = 0.0;
        for (int64_t j = 0; j < p.k; ++j) {
          const double term = double{p.expert_row(t, j)[c]} * p.weights.row(t)[j];
          sum += term;
          magnitude += std::abs(term);
          if (wire == DType::kBF16) wire_error += kRoundBF16 * std::abs(term);
        }
        ASSERT_NEAR(y.row(t)[c], sum, 1.01 * (roundings * kRoundF32 * magnitude + wire_error));
      }
    }
  }
}

TEST(MoeCombine, IsTheTreeOverExpertIds) {
  Random random(71);
  for_each_path([&](cpu::MatrixPath path) {
    expect_tree(Problem(1, 1, 4, 3, random), path);
    expect_tree(Problem(2, 4, 4, 17, random), path);
    expect_tree(Problem(9, 2, 9, 64, random), path);
    expect_tree(Problem(20, 6, 60, 33, random), path);
    expect_tree(Problem(6, 8, 128, 100, random), path);
    expect_tree(Problem(12, 10, 128, 40, random), path);
    expect_tree(Problem(2, 8, 128, 513, random), path);  // one column beyond a block of the plan
    expect_tree(Problem(1, 10, 16, 1300, random), path);
  });
}

/// The pairs of one token whose expert is in [first, first + count), summed by the op into zeros;
/// nothing when there are none.
std::optional<Matrix<float>> rank_sum(Stream& stream, const Problem& p, int64_t t, int32_t first,
                                      int32_t count) {
  const int32_t* ids = p.ids.row(t);
  const int64_t begin = std::lower_bound(ids, ids + p.k, first) - ids;
  const int64_t end = std::lower_bound(ids, ids + p.k, first + count) - ids;
  if (begin == end) return std::nullopt;
  Matrix<float> y(1, p.hidden, std::vector<float>(static_cast<size_t>(p.hidden), 0.0f));
  EXPECT_TRUE(moe_combine(stream, {.rows = p.rows.view(),
                                   .row_of = {p.row_of.row(t) + begin, {1, end - begin}, p.k},
                                   .expert_ids = {ids + begin, {1, end - begin}, p.k},
                                   .weights = {p.weights.row(t) + begin, {1, end - begin}, p.k},
                                   .y = y.view()})
                  .ok());
  return y;
}

TEST(MoeCombine, RanksSumAlignedSubtrees) {
  constexpr int64_t kTokens = 16, kHidden = 50;
  Random random(72);
  Cpu cpu(2);
  const Problem p(kTokens, 8, 64, kHidden, random);
  const Matrix<float> y = run(*cpu.stream, p, DType::kF32);
  for (int32_t ranks : {2, 4, 8}) {
    const int32_t share = 64 / ranks;
    for (int64_t t = 0; t < kTokens; ++t) {
      std::vector<std::optional<Matrix<float>>> sums;
      for (int32_t r = 0; r < ranks; ++r) {
        sums.push_back(rank_sum(*cpu.stream, p, t, r * share, share));
      }
      for (int64_t c = 0; c < kHidden; ++c) {
        std::vector<std::optional<float>> level;
        for (const auto& sum : sums) {
          level.push_back(sum ? std::optional(sum->row(0)[c]) : std::nullopt);
        }
        for (; level.size() > 1; level.resize(level.size() / 2)) {
          for (size_t i = 0; i < level.size() / 2; ++i) {
            const auto low = level[2 * i], high = level[2 * i + 1];
            level[i] = low && high ? std::optional(*low + *high) : (low ? low : high);
          }
        }
        ASSERT_EQ(y.row(t)[c], p.y.row(t)[c] + *level[0]) << ranks << " ranks, token " << t;
      }
    }
  }
}

TEST(MoeCombine, RowsStandAlone) {
  Random random(73);
  const Problem p(37, 6, 60, 700, random);
  for (DType wire : {DType::kF32, DType::kBF16}) {
    expect_rows_stand_alone(p.tokens(), random, [&](Stream& stream, const Rows& rows) {
      Problem some = p;
      some.row_of = p.row_of.pick(rows);
      some.ids = p.ids.pick(rows);
      some.weights = p.weights.pick(rows);
      some.y = p.y.pick(rows);
      return run(stream, some, wire).bits();
    });
  }
}

}  // namespace
}  // namespace tandem::ops
