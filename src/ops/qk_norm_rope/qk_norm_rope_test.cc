// Goal: qk_norm_rope norms and rotates query and key heads and writes K and V where the slots say
// (qk_norm_rope.h), touches no other byte of the pools, and a row's bits are its own.
// Method: float64 from the formula. A normed element has head_dim / 2 + 6 roundings (see
// rms_norm_test.cc), a rotated one two products and a sum more: head_dim / 2 + 8 of the sum of its
// two magnitudes. A bf16 pool rounds the result once more. V is exact. Pools start as bytes 0xff.
#include "ops/qk_norm_rope/qk_norm_rope.h"

#include "ops/testing/ops_test_support.h"

namespace tandem::ops {
namespace {

using namespace testing;

struct Case {
  int64_t tokens, heads, kv_heads, head_dim, rotary_dim, page_tokens;
  DType dtype;
};

/// Random inputs of one case.
struct Problem {
  Problem(const Case& the_case, Random& random)
      : c(the_case),
        pages(c.tokens / c.page_tokens + 3),
        qkv(c.tokens, columns(), random.normal(c.tokens * columns(), 3.0f)),
        q_norm(random.normal(c.head_dim)),
        k_norm(random.normal(c.head_dim)),
        cos_sin(kPositionsMax, c.rotary_dim, random.normal(kPositionsMax * c.rotary_dim)) {
    std::vector<int32_t> all(static_cast<size_t>(pages * c.page_tokens));
    std::iota(all.begin(), all.end(), 0);
    random.shuffle(all);
    slots.assign(all.begin(), all.begin() + c.tokens);
    for (int64_t t = 0; t < c.tokens; ++t) {
      positions.push_back(static_cast<int32_t>(random.integer(0, kPositionsMax - 1)));
    }
  }
  Pool pool() const { return {c.dtype, {pages, c.kv_heads, c.page_tokens, c.head_dim}}; }
  int64_t columns() const { return (c.heads + 2 * c.kv_heads) * c.head_dim; }

  /// Element d of a normed and rotated head, and the sum of magnitudes that made it.
  std::pair<double, double> expected(const float* x, const std::vector<float>& weight,
                                     int32_t position, int64_t d) const {
    double squares = 0.0;
    for (int64_t i = 0; i < c.head_dim; ++i) squares += double{x[i]} * x[i];
    const double root = std::sqrt(squares / static_cast<double>(c.head_dim) + double{kEps});
    const auto normed = [&](int64_t i) { return x[i] / root * weight[static_cast<size_t>(i)]; };
    if (d >= c.rotary_dim) return {normed(d), std::abs(normed(d))};
    const int64_t half = c.rotary_dim / 2;
    const int64_t pair = d % half;
    const double cosine = cos_sin.row(position)[pair], sine = cos_sin.row(position)[half + pair];
    const double own = normed(d) * cosine;
    const double other = d < half ? -normed(d + half) * sine : normed(d - half) * sine;
    return {own + other, std::abs(own) + std::abs(other)};
  }

  static constexpr int64_t kPositionsMax = 50;
  static constexpr float kEps = 1e-5f;
  Case c;
  int64_t pages;
  Matrix<float> qkv;
  std::vector<float> q_norm, k_norm;
  Matrix<float> cos_sin;
  std::vector<int32_t> positions, slots;
};

struct Written {
  Matrix<float> qkv;
  Pool k, v;
};

/// Runs the listed rows of a problem.
Written run(Stream& stream, const Problem& p, const Rows& rows) {
  Written out{p.qkv.pick(rows), p.pool(), p.pool()};
  std::vector<int32_t> positions, slots;
  for (int64_t r : rows) {
    positions.push_back(p.positions[static_cast<size_t>(r)]);
    slots.push_back(p.slots[static_cast<size_t>(r)]);
  }
  EXPECT_TRUE(qk_norm_rope(stream, {.qkv = out.qkv.view(),
                                    .heads = p.c.heads,
                                    .q_norm = view_of(p.q_norm),
                                    .k_norm = view_of(p.k_norm),
                                    .eps = Problem::kEps,
                                    .positions = view_of(positions),
                                    .cos_sin = p.cos_sin.view(),
                                    .slots = view_of(slots),
                                    .kv = {.k = out.k.tensor, .v = out.v.tensor}})
                  .ok());
  EXPECT_TRUE(out.qkv.margins_untouched());
  return out;
}

/// Overwrites the slots that were given with 0xff: then the whole pool must be 0xff.
bool others_untouched(const Problem& p, Pool pool) {
  const size_t head_bytes = static_cast<size_t>(p.c.head_dim) * dtype_bytes(p.c.dtype);
  for (int32_t slot : p.slots) {
    for (int64_t h = 0; h < p.c.kv_heads; ++h) {
      std::fill_n(&pool.bytes[pool.offset(slot, h, 0)], head_bytes, std::byte{0xff});
    }
  }
  return std::all_of(pool.bytes.begin(), pool.bytes.end(),
                     [](std::byte b) { return b == std::byte{0xff}; });
}

void expect_token(const Problem& p, const Written& out, int64_t t) {
  const Case& c = p.c;
  const double roundings = 1.01 * (static_cast<double>(c.head_dim) / 2 + 8) * kRoundF32;
  const int32_t slot = p.slots[static_cast<size_t>(t)];
  const int32_t position = p.positions[static_cast<size_t>(t)];
  for (int64_t h = 0; h < c.heads + c.kv_heads; ++h) {
    const bool is_query = h < c.heads;
    const float* x = p.qkv.row(t) + h * c.head_dim;
    for (int64_t d = 0; d < c.head_dim; ++d) {
      const auto [expected, magnitude] = p.expected(x, is_query ? p.q_norm : p.k_norm, position, d);
      double bound = roundings * magnitude;
      if (!is_query && c.dtype == DType::kBF16) bound += kRoundBF16 * (std::abs(expected) + bound);
      const float got =
          is_query ? out.qkv.row(t)[h * c.head_dim + d] : out.k.at(slot, h - c.heads, d);
      ASSERT_NEAR(got, expected, bound) << "token " << t << " head " << h << " dimension " << d;
    }
  }
  for (int64_t h = 0; h < c.kv_heads; ++h) {
    const float* x = p.qkv.row(t) + (c.heads + c.kv_heads + h) * c.head_dim;
    for (int64_t d = 0; d < c.head_dim; ++d) {
      ASSERT_EQ(out.v.at(slot, h, d), rounded(c.dtype, x[d])) << "token " << t << " V head " << h;
    }
  }
}

TEST(QkNormRope, EqualsTheFormulaAndWritesItsSlotsOnly) {
  Random random(81);
  for_each_path([&](cpu::MatrixPath path) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Case& c : {Case{1, 1, 1, 64, 64, 1, dtype},  // one page per token
                            Case{5, 4, 2, 128, 128, 7, dtype},
                            Case{3, 16, 1, 128, 64, 16, dtype},  // half of a head turns
                            Case{2, 4, 4, 256, 256, 16, dtype},
                            Case{33, 6, 2, 6, 4, 16, dtype},  // shorter than a vector
                            Case{20, 3, 3, 37, 34, 7, dtype}}) {
        SCOPED_TRACE(std::to_string(c.tokens) + " tokens, head_dim " + std::to_string(c.head_dim) +
                     " " + dtype_name(dtype));
        const Problem p(c, random);
        Cpu cpu(2, path);
        const Written out = run(*cpu.stream, p, all_rows(c.tokens));
        EXPECT_TRUE(others_untouched(p, out.k));
        EXPECT_TRUE(others_untouched(p, out.v));
        for (int64_t t = 0; t < c.tokens; ++t) expect_token(p, out, t);
      }
    }
  });
}

TEST(QkNormRope, RowsStandAlone) {
  Random random(82);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const Problem p({37, 4, 2, 64, 64, 16, dtype}, random);
    expect_rows_stand_alone(p.c.tokens, random, [&](Stream& stream, const Rows& rows) {
      const Written out = run(stream, p, rows);
      std::vector<Bits> bits(rows.size());
      const auto head_bytes = p.c.head_dim * static_cast<int64_t>(dtype_bytes(dtype));
      for (size_t i = 0; i < rows.size(); ++i) {
        append_bits(bits[i], out.qkv.row(static_cast<int64_t>(i)), p.c.heads * p.c.head_dim);
        for (int64_t h = 0; h < p.c.kv_heads; ++h) {
          const size_t offset = out.k.offset(p.slots[static_cast<size_t>(rows[i])], h, 0);
          append_bits(bits[i], &out.k.bytes[offset], head_bytes);
          append_bits(bits[i], &out.v.bytes[offset], head_bytes);
        }
      }
      return bits;
    });
  }
}

}  // namespace
}  // namespace tandem::ops
