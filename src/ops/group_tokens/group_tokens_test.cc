// Goal: group_tokens orders the (token, expert) pairs by expert, tokens ascending within one, and
// its three outputs agree (group_tokens.h).
// Method: exact integers from a stable sort of all pairs; outputs poisoned; any number of threads.
#include "ops/group_tokens/group_tokens.h"

#include "ops/testing/ops_test_support.h"

namespace tandem::ops {
namespace {

using namespace testing;

struct Pair {
  int32_t expert;
  int64_t token, choice;
};

void expect_order(const Matrix<int32_t>& ids, int64_t experts) {
  const int64_t tokens = ids.rows(), k = ids.columns();
  SCOPED_TRACE(std::to_string(tokens) + " tokens, " + std::to_string(k) + " of " +
               std::to_string(experts));
  std::vector<Pair> pairs;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < k; ++j) pairs.push_back({ids.row(t)[j], t, j});
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.expert < b.expert; });
  for (int threads : {1, 2, 3}) {
    Cpu cpu(threads);
    Matrix<int32_t> offsets(1, experts + 1), row_source(1, tokens * k), row_of(tokens, k);
    ASSERT_TRUE(group_tokens(*cpu.stream, {.expert_ids = ids.view(),
                                           .expert_offsets = offsets.vector(),
                                           .row_source = row_source.vector(),
                                           .row_of = row_of.view()})
                    .ok());
    EXPECT_TRUE(offsets.margins_untouched());
    EXPECT_TRUE(row_source.margins_untouched());
    EXPECT_TRUE(row_of.margins_untouched());
    for (size_t row = 0; row < pairs.size(); ++row) {
      const Pair& pair = pairs[row];
      ASSERT_EQ(row_source.row(0)[row], pair.token) << "row " << row;
      ASSERT_EQ(row_of.row(pair.token)[pair.choice], static_cast<int32_t>(row));
    }
    for (int64_t e = 0; e <= experts; ++e) {
      const auto before = std::count_if(pairs.begin(), pairs.end(),
                                        [e](const Pair& pair) { return pair.expert < e; });
      ASSERT_EQ(offsets.row(0)[e], before) << "expert " << e;
    }
  }
}

Matrix<int32_t> random_ids(int64_t tokens, int64_t k, int64_t experts, Random& random) {
  Matrix<int32_t> ids(tokens, k);
  for (int64_t t = 0; t < tokens; ++t) {
    const auto chosen = random.choose(k, experts);
    std::copy(chosen.begin(), chosen.end(), ids.row(t));
  }
  return ids;
}

TEST(GroupTokens, SortsPairsByExpertThenToken) {
  Random random(61);
  for (const auto [tokens, k, experts] : {std::array<int64_t, 3>{1, 1, 4},
                                          {1, 4, 4},
                                          {2, 8, 128},  // most experts have no row
                                          {33, 10, 128},
                                          {500, 6, 60},
                                          {300, 1, 5},
                                          {0, 2, 4}}) {
    expect_order(random_ids(tokens, k, experts, random), experts);
  }
}

TEST(GroupTokens, OneExpertMayTakeAll) {
  for (int32_t expert : {0, 3, 6}) {
    expect_order(Matrix<int32_t>(20, 1, std::vector<int32_t>(20, expert)), 7);
  }
}

}  // namespace
}  // namespace tandem::ops
