// Goal: route picks the k largest of the softmax, the lower id on ties, in ascending id, with the
// weights of route.h, both normalisations; and a row's bits are its own.
// Method: the softmax keeps the order of the logits, so the expected ids are exact: a stable sort
// by falling logit. Weights in float64: an exponential of a difference d is off by |d| roundings
// of the difference and 4 of its own; a sum of n positive terms adds n to the mean error of its
// terms, the quotient one more. Exponentials below the normal range may be lost.
#include "ops/route/route.h"

#include "ops/testing/ops_test_support.h"

namespace tandem::ops {
namespace {

using namespace testing;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Routed {
  Matrix<int32_t> ids;
  Matrix<float> weights;
};

Routed run(Stream& stream, const Matrix<float>& logits, int64_t k, bool renormalise) {
  Routed out{{logits.rows(), k}, {logits.rows(), k}};
  EXPECT_TRUE(route(stream, {.logits = logits.view(),
                             .renormalise = renormalise,
                             .expert_ids = out.ids.view(),
                             .weights = out.weights.view()})
                  .ok());
  EXPECT_TRUE(out.ids.margins_untouched());
  EXPECT_TRUE(out.weights.margins_untouched());
  return out;
}

std::vector<int32_t> expected_ids(const float* logits, int64_t experts, int64_t k) {
  std::vector<int32_t> ids(static_cast<size_t>(experts));
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  ids.resize(static_cast<size_t>(k));
  std::sort(ids.begin(), ids.end());
  return ids;
}

/// A sum of exponentials and how many roundings of it its terms may be off.
struct Sum {
  void add(double difference) {
    value += std::exp(difference);
    // Beyond -104 the exponential is below f32 altogether.
    if (difference > -104.0) roundings_total += std::exp(difference) * term_roundings(difference);
  }
  static double term_roundings(double difference) { return std::abs(difference) + kRoundingsOfExp; }
  double roundings() const { return roundings_total / value; }
  double value = 0.0;
  double roundings_total = 0.0;
};

void expect_row(const float* logits, int64_t experts, bool renormalise, const int32_t* ids,
                const float* weights, int64_t k) {
  const std::vector<int32_t> chosen = expected_ids(logits, experts, k);
  const double largest = *std::max_element(logits, logits + experts);
  Sum sum;
  if (renormalise) {
    for (int32_t e : chosen) sum.add(logits[e] - largest);
  } else {
    for (int64_t e = 0; e < experts; ++e) sum.add(logits[e] - largest);
  }
  for (int64_t j = 0; j < k; ++j) {
    const int32_t e = chosen[static_cast<size_t>(j)];
    ASSERT_EQ(ids[j], e) << "choice " << j;
    const double difference = logits[e] - largest;
    const double expected = std::exp(difference) / sum.value;
    const double roundings = Sum::term_roundings(std::max(difference, -104.0)) + sum.roundings() +
                             static_cast<double>(renormalise ? k : experts) + 1;
    ASSERT_NEAR(weights[j], expected, 1.01 * roundings * kRoundF32 * expected + kSmallestNormal)
        << "choice " << j << " expert " << e;
  }
}

/// Logits of one kind; `step` > 0 puts them on a grid, so that many are equal.
Matrix<float> random_logits(int64_t tokens, int64_t experts, float spread, float step,
                            Random& random) {
  Matrix<float> logits(tokens, experts, random.normal(tokens * experts, spread));
  if (step > 0.0f) {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t e = 0; e < experts; ++e) {
        logits.row(t)[e] = std::round(logits.row(t)[e] / step) * step + step / 4;
      }
    }
  }
  return logits;
}

void expect_formula(int64_t tokens, int64_t experts, int64_t k, cpu::MatrixPath path,
                    Random& random) {
  SCOPED_TRACE(std::to_string(tokens) + " tokens, " + std::to_string(k) + " of " +
               std::to_string(experts));
  Cpu cpu(2, path);
  for (float spread : {1.0f, 8.0f, 100.0f}) {
    for (float step : {0.0f, spread / 2}) {
      Matrix<float> logits = random_logits(tokens, experts, spread, step, random);
      // An expert that is switched off; with it at least k others are left or none is needed.
      if (k < experts) logits.row(tokens / 2)[random.integer(0, experts - 1)] = -kInfinity;
      for (bool renormalise : {true, false}) {
        const Routed out = run(*cpu.stream, logits, k, renormalise);
        for (int64_t t = 0; t < tokens; ++t) {
          SCOPED_TRACE("token " + std::to_string(t));
          expect_row(logits.row(t), experts, renormalise, out.ids.row(t), out.weights.row(t), k);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Route, PicksTheLargestAndWeighsThem) {
  Random random(51);
  for_each_path([&](cpu::MatrixPath path) {
    expect_formula(1, 4, 1, path, random);
    expect_formula(3, 4, 4, path, random);
    expect_formula(7, 9, 2, path, random);
    expect_formula(40, 60, 6, path, random);
    expect_formula(33, 128, 8, path, random);
    expect_formula(5, 128, 10, path, random);
  });
}

TEST(Route, TheLowerIdWinsATie) {
  Cpu cpu(1);
  const Matrix<float> equal(1, 8, std::vector<float>(8, 0.7f));
  const Routed out = run(*cpu.stream, equal, 3, true);
  for (int32_t j = 0; j < 3; ++j) {
    EXPECT_EQ(out.ids.row(0)[j], j);
    EXPECT_NEAR(out.weights.row(0)[j], 1.0 / 3.0, 2 * kRoundF32);
  }
}

// Later ops index with the ids, so these stay usable; the weights show that something is wrong.
TEST(Route, WhatIsNotANumberShowsInTheWeights) {
  Random random(52);
  for_each_path([&](cpu::MatrixPath path) {
    Cpu cpu(1, path);
    for (float bad : {kNaN, kInfinity}) {
      for (int64_t position : {0, 3, 17, 39}) {
        Matrix<float> logits = random_logits(1, 40, 1.0f, 0.0f, random);
        logits.row(0)[position] = bad;
        for (bool renormalise : {true, false}) {
          const Routed out = run(*cpu.stream, logits, 4, renormalise);
          int32_t last = -1;
          for (int64_t j = 0; j < 4; ++j) {
            const int32_t id = out.ids.row(0)[j];
            EXPECT_GT(id, last);
            EXPECT_LT(id, 40);
            last = id;
            EXPECT_TRUE(std::isnan(out.weights.row(0)[j])) << "expert " << position;
          }
        }
      }
    }
  });
}

TEST(Route, RowsStandAlone) {
  constexpr int64_t kTokens = 37, kExperts = 60, kChosen = 6;
  Random random(53);
  const Matrix<float> logits = random_logits(kTokens, kExperts, 2.0f, 0.0f, random);
  for (bool renormalise : {true, false}) {
    expect_rows_stand_alone(kTokens, random, [&](Stream& stream, const Rows& rows) {
      const Routed out = run(stream, logits.pick(rows), kChosen, renormalise);
      std::vector<Bits> bits = out.weights.bits();
      for (size_t i = 0; i < bits.size(); ++i) {
        append_bits(bits[i], out.ids.row(static_cast<int64_t>(i)), kChosen);
      }
      return bits;
    });
  }
}

}  // namespace
}  // namespace tandem::ops
