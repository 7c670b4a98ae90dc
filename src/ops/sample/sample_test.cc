// Goal: sample applies every stage of sample.h in its order, draws by inverse CDF with the number
// of (seed, choice, position), reports log probabilities of the raw logits, refuses what is not
// finite; and a row's token is its own.
// Method: a plain float64 sampler. Logits, biases and penalties lie on a grid on which f32 is exact
// (steps of 1/64, factors of two), so that ties are ties on both sides. What remains is rounded in
// the kernel: a probability by |x| + 4 + 1 roundings of itself for x = (logit - largest) /
// temperature, so a share of a sum by at most twice the mean of these. A threshold or a draw that
// lies closer than that to a boundary has more than one right answer; all of them are accepted, and
// such cases must be rarer than 1 %. Distributions: chi-square, false alarm in 1 of 10^6 seeds.
#include "ops/sample/sample.h"

#include "ops/sample/sample_test_reference.h"
#include "ops/testing/ops_test_support.h"

namespace tandem::ops {
namespace {

using namespace testing;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Runs rows over poisoned results, with guards behind them.
std::vector<SampledRow> run(Stream& stream, const Matrix<float>& logits,
                            const std::vector<SampleRow>& rows) {
  const SampledRow poison{.token = 77, .finite = false, .logprob = kNaN, .top_count = 99};
  std::vector<SampledRow> out(rows.size() + 1, poison);
  EXPECT_TRUE(
      sample(stream,
             {.logits = logits.view(), .rows = rows, .out = std::span(out).first(rows.size())})
          .ok());
  EXPECT_EQ(out.back().token, 77);
  EXPECT_EQ(out.back().top_count, 99);
  out.pop_back();
  return out;
}

SampledRow run_one(Stream& stream, const std::vector<float>& logits, const SampleRow& row) {
  const Matrix<float> matrix(1, static_cast<int64_t>(logits.size()), logits);
  return run(stream, matrix, {row}).front();
}

/// A row of random parameters; owns what its spans show.
struct RandomRow {
  RandomRow(int64_t vocabulary, Random& random) {
    const auto token = [&] { return static_cast<TokenId>(random.integer(0, vocabulary - 1)); };
    const auto one_of = [&](std::initializer_list<float> values) {
      return values.begin()[random.integer(0, static_cast<int64_t>(values.size()) - 1)];
    };
    row.temperature = one_of({0.0f, 0.25f, 0.7f, 1.0f, 1.3f, 5.0f});
    row.top_k = static_cast<int32_t>(one_of({0.0f, 0.0f, 1.0f, 3.0f, 20.0f, 1000.0f}));
    row.top_p = one_of({1.0f, 1.0f, 0.95f, 0.6f, 0.1f, 1e-3f});
    row.min_p = one_of({0.0f, 0.0f, 0.03f, 0.4f, 1.0f});
    row.presence_penalty = one_of({0.0f, 0.0f, 0.5f, -0.25f});
    row.frequency_penalty = one_of({0.0f, 0.0f, 0.125f, -0.5f});
    row.repetition_penalty = one_of({1.0f, 1.0f, 2.0f, 0.5f});
    row.seed = static_cast<uint64_t>(random.integer(0, INT64_MAX));
    row.choice_index = static_cast<uint32_t>(random.integer(0, 3));
    row.position = static_cast<uint32_t>(random.integer(0, 5000));
    row.logprobs_count = static_cast<int32_t>(random.integer(-1, kTopLogprobsMax));
    if (one_of({0.0f, 1.0f}) != 0.0f) {
      row.vocabulary_limit = static_cast<int32_t>(random.integer(vocabulary / 2 + 1, vocabulary));
    }
    for (int64_t i = random.integer(0, 6); i > 0; --i) {
      bias.push_back({token(), one_of({-100.0f, -1.25f, 0.5f, 2.75f, 100.0f})});
    }
    for (int64_t i = random.integer(0, 12); i > 0; --i) prompt.push_back(token());
    for (int64_t i = random.integer(0, 12); i > 0; --i) generated.push_back(token());
    if (!generated.empty()) generated.push_back(generated.front());
    for (int64_t i = random.integer(0, 3); i > 0; --i) masked.push_back(token());
    row.bias = bias;
    row.prompt = prompt;
    row.generated = generated;
    row.masked_tokens = masked;
  }
  std::vector<TokenBias> bias;
  std::vector<TokenId> prompt, generated, masked;
  SampleRow row;
};

/// Multiples of 1/64, some of them equal, none of them zero.
Matrix<float> grid_logits(int64_t rows, int64_t vocabulary, Random& random) {
  Matrix<float> logits(rows, vocabulary);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < vocabulary; ++i) {
      logits.row(r)[i] = std::round(random.normal_value(2.0f) * 16.0f) / 16.0f + 0x1p-6f;
    }
  }
  return logits;
}

void expect_logprobs(const SampleRow& row, const float* raw, int64_t vocabulary,
                     const SampledRow& out) {
  if (row.logprobs_count < 0) {
    EXPECT_EQ(out.top_count, 0);
    return;
  }
  const double largest = *std::max_element(raw, raw + vocabulary);
  double sum = 0.0;
  for (int64_t i = 0; i < vocabulary; ++i) sum += std::exp(raw[i] - largest);
  const auto expect_one = [&](TokenId token, float logprob) {
    const double expected = raw[token] - largest - std::log(sum);
    if (std::isinf(expected)) {
      EXPECT_EQ(logprob, -kInfinity);
    } else {
      // Computed in double, rounded to f32 at the end.
      EXPECT_NEAR(logprob, expected, 1.01 * kRoundF32 * std::abs(expected) + 1e-12);
    }
  };
  expect_one(out.token, out.logprob);
  std::vector<TokenId> ids(static_cast<size_t>(vocabulary));
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) { return raw[a] > raw[b]; });
  ASSERT_EQ(out.top_count, std::min<int64_t>(row.logprobs_count, vocabulary));
  for (size_t i = 0; i < out.top().size(); ++i) {
    EXPECT_EQ(out.top()[i].token, ids[i]);
    expect_one(out.top()[i].token, out.top()[i].logprob);
  }
}

TEST(Sample, EveryStageInItsOrder) {
  Random random(101);
  int64_t drawn = 0, ambiguous = 0;
  for_each_path([&](cpu::MatrixPath path) {
    Cpu cpu(2, path);
    for (int64_t vocabulary : {1, 2, 7, 50, 300, 1100}) {
      for (int batch = 0; batch < 6; ++batch) {
        constexpr int64_t kRows = 16;
        Matrix<float> logits = grid_logits(kRows, vocabulary, random);
        if (vocabulary > 2) logits.row(3)[random.integer(0, vocabulary - 1)] = -kInfinity;
        std::vector<RandomRow> random_rows;
        std::vector<SampleRow> rows;
        random_rows.reserve(kRows);
        for (int64_t r = 0; r < kRows; ++r) {
          rows.push_back(random_rows.emplace_back(vocabulary, random).row);
        }
        const auto out = run(*cpu.stream, logits, rows);
        for (int64_t r = 0; r < kRows; ++r) {
          const SampleRow& row = rows[static_cast<size_t>(r)];
          const SampledRow& got = out[static_cast<size_t>(r)];
          SCOPED_TRACE("vocabulary " + std::to_string(vocabulary) + " row " + std::to_string(r));
          const auto x = adjusted(row, logits.row(r), vocabulary);
          const auto best = std::max_element(x.begin(), x.end());  // the lowest id on ties
          ASSERT_EQ(got.finite, *best > -kInfinityF64);
          if (!got.finite) {
            ASSERT_EQ(got.token, -1);
            continue;
          }
          if (row.temperature == 0.0f) {
            ASSERT_EQ(got.token, best - x.begin());
          } else {
            const std::set<TokenId> right = ReferenceSampler(row, x).tokens();
            ASSERT_TRUE(right.contains(got.token)) << got.token << " is not " << *right.begin();
            ++drawn;
            ambiguous += right.size() > 1 ? 1 : 0;
          }
          expect_logprobs(row, logits.row(r), vocabulary, got);
        }
      }
    }
  });
  EXPECT_GT(drawn, 1000);
  EXPECT_LT(ambiguous * 100, drawn);
}

/// What 400 draws of one row give: each kept token here has a share of 5 % or more, so one stays
/// away in 1 of 10^9 seeds.
std::set<TokenId> drawn(const std::vector<float>& logits, SampleRow row) {
  Cpu cpu(1);
  std::set<TokenId> tokens;
  for (row.position = 0; row.position < 400; ++row.position) {
    tokens.insert(run_one(*cpu.stream, logits, row).token);
  }
  return tokens;
}

TEST(Sample, StagesByHand) {
  using Set = std::set<TokenId>;
  const TokenId one[] = {1};
  const TokenId ones[] = {1, 1, 1};
  const TokenId zero_one[] = {0, 1};
  const TokenBias bias[] = {{2, 3.0f}, {2, 1.0f}, {0, -100.0f}};
  const std::vector<float> equal(5, 0.3f);
  EXPECT_EQ(drawn(equal, {}), (Set{0, 1, 2, 3, 4}));
  EXPECT_EQ(drawn(equal, {.top_k = 2}), (Set{0, 1}));  // lower ids first
  EXPECT_EQ(drawn(equal, {.top_k = 9}), (Set{0, 1, 2, 3, 4}));
  EXPECT_EQ(drawn(equal, {.top_p = 0.5f}), (Set{0, 1, 2}));  // the one that crosses stays
  EXPECT_EQ(drawn(equal, {.min_p = 1.0f}), (Set{0, 1, 2, 3, 4}));
  EXPECT_EQ(drawn(equal, {.masked_tokens = one}), (Set{0, 2, 3, 4}));
  EXPECT_EQ(drawn(equal, {.vocabulary_limit = 2}), (Set{0, 1}));
  // top_p is a share of what top_k left: 0.7 of {1/2, 1/2} needs both, 0.4 of it one.
  EXPECT_EQ(drawn(equal, {.top_k = 2, .top_p = 0.7f}), (Set{0, 1}));
  EXPECT_EQ(drawn(equal, {.top_k = 2, .top_p = 0.4f}), (Set{0}));
  // Odds of 4, 2 and 1 to the largest.
  const std::vector<float> odds{std::log(1.0f), std::log(4.0f), std::log(2.0f)};
  EXPECT_EQ(drawn(odds, {.min_p = 0.3f}), (Set{1, 2}));
  EXPECT_EQ(drawn(odds, {.min_p = 0.6f}), (Set{1}));
  EXPECT_EQ(drawn(odds, {.temperature = 0.5f, .min_p = 0.3f}), (Set{1}));  // 16, 4 and 1
  EXPECT_EQ(drawn(odds, {.temperature = 1e-6f}), (Set{1}));
  // Greedy: the lowest id on ties, after bias and penalties, whatever the other stages say.
  EXPECT_EQ(drawn({1.5f, 2.5f, 2.5f}, {.temperature = 0.0f}), (Set{1}));
  EXPECT_EQ(drawn({1.5f, 2.5f, 2.5f}, {.temperature = 0.0f, .masked_tokens = one}), (Set{2}));
  EXPECT_EQ(drawn({1.5f, 2.5f, 1.0f}, {.temperature = 0.0f, .bias = bias}), (Set{2}));
  EXPECT_EQ(drawn({1.5f, 2.5f, 1.0f},
                  {.temperature = 0.0f, .presence_penalty = 0.75f, .generated = ones}),
            (Set{1}));
  EXPECT_EQ(drawn({1.5f, 2.5f, 1.0f},
                  {.temperature = 0.0f, .frequency_penalty = 0.75f, .generated = ones}),
            (Set{0}));
  EXPECT_EQ(
      drawn({1.5f, 2.5f, 1.0f}, {.temperature = 0.0f, .repetition_penalty = 2.0f, .prompt = one}),
      (Set{0}));
  // Once per token however often it occurs, and away from zero below it.
  EXPECT_EQ(
      drawn({1.0f, 2.5f, 0.5f},
            {.temperature = 0.0f, .repetition_penalty = 2.0f, .prompt = one, .generated = ones}),
      (Set{1}));
  EXPECT_EQ(drawn({-1.0f, -1.5f, -1.75f},
                  {.temperature = 0.0f, .repetition_penalty = 2.0f, .prompt = zero_one}),
            (Set{2}));
  // The prompt counts for repetition alone.
  EXPECT_EQ(
      drawn({1.5f, 2.5f, 1.0f}, {.temperature = 0.0f, .presence_penalty = 2.0f, .prompt = one}),
      (Set{1}));
}

TEST(Sample, RefusesWhatIsNotFinite) {
  Cpu cpu(1);
  const TokenId all[] = {0, 1, 2};
  for (float temperature : {0.0f, 1.0f}) {
    for (size_t i : {0u, 1u, 2u}) {
      for (float bad : {kNaN, kInfinity}) {
        std::vector<float> logits{1.0f, 2.0f, 3.0f};
        logits[i] = bad;
        const SampledRow out =
            run_one(*cpu.stream, logits, {.temperature = temperature, .logprobs_count = 2});
        EXPECT_FALSE(out.finite);
        EXPECT_EQ(out.token, -1);
        EXPECT_EQ(out.top_count, 0);
      }
    }
    // Nothing left to choose: all impossible from the start, or all masked.
    const std::vector<float> impossible(3, -kInfinity);
    EXPECT_FALSE(run_one(*cpu.stream, impossible, {.temperature = temperature}).finite);
    const SampledRow masked = run_one(*cpu.stream, {1.0f, 2.0f, 3.0f},
                                      {.temperature = temperature, .masked_tokens = all});
    EXPECT_FALSE(masked.finite);
    EXPECT_EQ(masked.token, -1);
    // One left is enough.
    const SampledRow one =
        run_one(*cpu.stream, {-kInfinity, -5.0f, -kInfinity}, {.temperature = temperature});
    EXPECT_TRUE(one.finite);
    EXPECT_EQ(one.token, 1);
  }
}

/// The chance that chi-square with an even number of degrees of freedom exceeds `x`.
double chi_square_tail(double x, int degrees) {
  double term = std::exp(-x / 2), sum = 0.0;
  for (int i = 0; i < degrees / 2; ++i) {
    sum += term;
    term *= x / 2 / (i + 1);
  }
  return sum;
}

TEST(Sample, DrawsFollowTheDistribution) {
  constexpr int64_t kVocabulary = 41, kDraws = 60000, kRows = 1000;
  Random random(102);
  Cpu cpu(2);
  const auto logits = random.normal(kVocabulary);
  Matrix<float> matrix(kRows, kVocabulary);
  for (int64_t r = 0; r < kRows; ++r) std::copy(logits.begin(), logits.end(), matrix.row(r));
  const double temperature = 0.8;
  std::vector<double> p;
  for (float x : logits) p.push_back(std::exp(double{x} / temperature));
  const double total = std::accumulate(p.begin(), p.end(), 0.0);

  // One part of the key counts up, the others stand still.
  for (const char* part : {"position", "choice", "seed"}) {
    std::vector<int64_t> counts(kVocabulary);
    for (int64_t first = 0; first < kDraws; first += kRows) {
      std::vector<SampleRow> rows(kRows, {.temperature = static_cast<float>(temperature)});
      for (int64_t r = 0; r < kRows; ++r) {
        SampleRow& row = rows[static_cast<size_t>(r)];
        const auto number = static_cast<uint32_t>(first + r);
        if (part[0] == 'p') row.position = number;
        if (part[0] == 'c') row.choice_index = number;
        if (part[0] == 's') row.seed = number;
      }
      for (const SampledRow& out : run(*cpu.stream, matrix, rows)) {
        ++counts[static_cast<size_t>(out.token)];
      }
    }
    double chi_square = 0.0;
    for (size_t i = 0; i < counts.size(); ++i) {
      const double expected = p[i] / total * kDraws;
      ASSERT_GT(expected, 5.0);
      chi_square += std::pow(static_cast<double>(counts[i]) - expected, 2) / expected;
    }
    EXPECT_GT(chi_square_tail(chi_square, kVocabulary - 1), 1e-6) << part << " " << chi_square;
  }
}

TEST(Sample, RowsStandAlone) {
  constexpr int64_t kRows = 61, kVocabulary = 500;
  Random random(103);
  const Matrix<float> logits(kRows, kVocabulary, random.normal(kRows * kVocabulary, 3.0f));
  std::vector<RandomRow> random_rows;
  random_rows.reserve(kRows);
  for (int64_t r = 0; r < kRows; ++r) random_rows.emplace_back(kVocabulary, random);
  expect_rows_stand_alone(kRows, random, [&](Stream& stream, const Rows& numbers) {
    std::vector<SampleRow> rows;
    for (int64_t r : numbers) rows.push_back(random_rows[static_cast<size_t>(r)].row);
    std::vector<Bits> bits;
    for (const SampledRow& out : run(stream, logits.pick(numbers), rows)) {
      append_bits(bits.emplace_back(), &out.token, 1);
      append_bits(bits.back(), &out.logprob, 1);
      for (const TokenLogprob& top : out.top()) {
        append_bits(bits.back(), &top.token, 1);
        append_bits(bits.back(), &top.logprob, 1);
      }
    }
    return bits;
  });
}

}  // namespace
}  // namespace tandem::ops
