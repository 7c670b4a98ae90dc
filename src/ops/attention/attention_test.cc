// Goal: attention equals softmax(scale * q.k) V over the positions a query may see (attention.h),
// reads no other position or page, and a sequence's bits do not depend on chunks, neighbours,
// pages or threads.
// Method: one float64 softmax per query head, without parts; everything a row must not see is NaN.
// Tolerance, in f32 roundings: a score is off by head_dim + 2 of the sum of its magnitudes; its
// weight by that, by the distance d of the score to the largest (differences are rounded, over all
// merges they add up to d), by 4 for the exponential and 3 for each merge of a part. A part sums up
// to 256 products; products, merges and the division add 2 + 2 * parts + 2. A bf16 pool rounds each
// weight of V once to bf16. Weights below the normal range may be lost.
#include "ops/attention/attention.h"

#include "ops/testing/ops_test_support.h"

namespace tandem::ops {
namespace {

using namespace testing;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Shape {
  int64_t heads, kv_heads, head_dim;
  DType dtype;
  int64_t q_columns() const { return heads * head_dim; }
  int64_t kv_columns() const { return kv_heads * head_dim; }
};

/// The last `queries` of `kv_tokens` positions ask.
struct Length {
  int64_t queries, kv_tokens;
};

struct Sequence {
  Sequence(const Shape& shape, Length the_length, Random& random)
      : length(the_length),
        q(length.queries, shape.q_columns(), random.normal(length.queries * shape.q_columns())),
        k(length.kv_tokens, shape.kv_columns()),
        v(length.kv_tokens, shape.kv_columns()) {
    for (int64_t t = 0; t < length.kv_tokens; ++t) {
      for (int64_t c = 0; c < shape.kv_columns(); ++c) {
        k.row(t)[c] = rounded(shape.dtype, random.normal_value(2.0f));
        v.row(t)[c] = rounded(shape.dtype, random.normal_value());
      }
    }
  }
  int64_t first_position() const { return length.kv_tokens - length.queries; }

  Length length;
  Matrix<float> q;  // [queries, heads * head_dim]
  Matrix<float> k;  // [kv_tokens, kv_heads * head_dim]
  Matrix<float> v;
};

struct Problem {
  Problem(const Shape& the_shape, const std::vector<Length>& lengths, Random& random)
      : shape(the_shape), scale(1.0f / std::sqrt(static_cast<float>(shape.head_dim))) {
    for (const Length& length : lengths) sequences.emplace_back(shape, length, random);
  }
  Shape shape;
  float scale;
  std::vector<Sequence> sequences;
};

/// Some query rows of a sequence, as one step gets them.
struct Chunk {
  const Sequence* sequence;
  int64_t first, count;
  int64_t kv_tokens() const { return sequence->first_position() + first + count; }
};

/// The chunks' keys and values in pages of random order. Page 0 belongs to nobody and fills the
/// unused ends of page tables; all that no chunk sees is NaN.
struct Cache {
  Cache(const Shape& shape, const std::vector<Chunk>& chunks, int64_t page_tokens, Random& random)
      : k(shape.dtype, pool_shape(shape, chunks, page_tokens)),
        v(k),
        page_table(static_cast<int64_t>(chunks.size()), pages_max(chunks, page_tokens) + 1) {
    std::vector<int32_t> free(static_cast<size_t>(k.tensor.shape[0] - 1));
    std::iota(free.begin(), free.end(), 1);
    random.shuffle(free);
    for (size_t i = 0; i < chunks.size(); ++i) {
      int32_t* pages = page_table.row(static_cast<int64_t>(i));
      std::fill_n(pages, page_table.columns(), 0);
      if (chunks[i].count == 0) continue;
      for (int64_t t = 0; t < chunks[i].kv_tokens(); ++t) {
        if (t % page_tokens == 0) {
          pages[t / page_tokens] = free.back();
          free.pop_back();
        }
        const int64_t slot = pages[t / page_tokens] * page_tokens + t % page_tokens;
        const Sequence& s = *chunks[i].sequence;
        for (int64_t h = 0; h < shape.kv_heads; ++h) {
          k.set(slot, h, s.k.row(t) + h * shape.head_dim);
          v.set(slot, h, s.v.row(t) + h * shape.head_dim);
        }
      }
    }
  }
  static int64_t pages_max(const std::vector<Chunk>& chunks, int64_t page_tokens) {
    int64_t most = 0;
    for (const Chunk& chunk : chunks) most = std::max(most, chunk.kv_tokens());
    return (most + page_tokens - 1) / page_tokens;
  }
  static std::array<int64_t, 4> pool_shape(const Shape& shape, const std::vector<Chunk>& chunks,
                                           int64_t page_tokens) {
    int64_t pages = 1;
    for (const Chunk& chunk : chunks) {
      pages += (chunk.kv_tokens() + page_tokens - 1) / page_tokens;
    }
    return {pages, shape.kv_heads, page_tokens, shape.head_dim};
  }
  Pool k, v;
  Matrix<int32_t> page_table;
};

/// All chunks in one call; the rows of each chunk.
std::vector<Matrix<float>> run(Stream& stream, const Problem& p, const std::vector<Chunk>& chunks,
                               int64_t page_tokens, Random& random) {
  const Cache cache(p.shape, chunks, page_tokens, random);
  std::vector<int32_t> query_start{0}, kv_tokens;
  for (const Chunk& chunk : chunks) {
    query_start.push_back(query_start.back() + static_cast<int32_t>(chunk.count));
    kv_tokens.push_back(static_cast<int32_t>(chunk.kv_tokens()));
  }
  Matrix<float> q(query_start.back(), p.shape.q_columns());
  Matrix<float> out(query_start.back(), p.shape.q_columns());
  int64_t row = 0;
  for (const Chunk& chunk : chunks) {
    for (int64_t i = 0; i < chunk.count; ++i) {
      std::copy_n(chunk.sequence->q.row(chunk.first + i), q.columns(), q.row(row++));
    }
  }
  EXPECT_TRUE(attention(stream, {.q = q.view(),
                                 .kv = {.k = cache.k.tensor, .v = cache.v.tensor},
                                 .heads = p.shape.heads,
                                 .scale = p.scale,
                                 .query_start = view_of(query_start),
                                 .kv_tokens = view_of(kv_tokens),
                                 .page_table = cache.page_table.view(),
                                 .out = out.view()})
                  .ok());
  EXPECT_TRUE(out.margins_untouched());
  std::vector<Matrix<float>> results;
  row = 0;
  for (const Chunk& chunk : chunks) {
    results.emplace_back(chunk.count, q.columns());
    for (int64_t i = 0; i < chunk.count; ++i) {
      std::copy_n(out.row(row++), q.columns(), results.back().row(i));
    }
  }
  return results;
}

std::vector<Chunk> whole(const Problem& p) {
  std::vector<Chunk> chunks;
  for (const Sequence& s : p.sequences) chunks.push_back({&s, 0, s.length.queries});
  return chunks;
}

/// Attention of one query head in float64, and how far an f32 result may be off.
struct Expected {
  std::vector<double> value, bound;  // [head_dim]
};

Expected expected_head(const Problem& p, const Sequence& s, int64_t query, int64_t head) {
  const int64_t head_dim = p.shape.head_dim;
  const int64_t kv_column = head / (p.shape.heads / p.shape.kv_heads) * head_dim;
  const float* q = s.q.row(query) + head * head_dim;
  const int64_t visible = s.first_position() + query + 1;
  std::vector<double> score, magnitude;
  for (int64_t j = 0; j < visible; ++j) {
    double sum = 0.0, size = 0.0;
    for (int64_t d = 0; d < head_dim; ++d) {
      const double term = double{rounded(p.shape.dtype, q[d])} * s.k.row(j)[kv_column + d];
      sum += term;
      size += std::abs(term);
    }
    score.push_back(double{p.scale} * sum);
    magnitude.push_back(double{p.scale} * size);
  }
  const double largest = *std::max_element(score.begin(), score.end());
  const auto parts = static_cast<double>((visible - 1) / kAttentionSplitTokens + 1);
  const double sum_roundings = static_cast<double>(kAttentionSplitTokens) + 2 + 2 * parts + 2;
  const double value_rounding = p.shape.dtype == DType::kBF16 ? kRoundBF16 : 0.0;

  double total = 0.0, total_error = 0.0;
  const auto size = static_cast<size_t>(head_dim);
  std::vector<double> sum(size), error(size), lost(size);
  for (int64_t j = 0; j < visible; ++j) {
    const auto i = static_cast<size_t>(j);
    const double weight = std::exp(score[i] - largest);
    const double roundings = static_cast<double>(head_dim + 2) * magnitude[i] +
                             (largest - score[i]) + kRoundingsOfExp + 3 * (parts + 1);
    total += weight;
    total_error += weight * (roundings + sum_roundings) * kRoundF32;
    for (size_t d = 0; d < size; ++d) {
      const double term = weight * s.v.row(j)[kv_column + static_cast<int64_t>(d)];
      sum[d] += term;
      error[d] += std::abs(term) * ((roundings + sum_roundings) * kRoundF32 + value_rounding);
      lost[d] += kSmallestNormal * std::abs(s.v.row(j)[kv_column + static_cast<int64_t>(d)]);
    }
  }
  Expected expected;
  for (size_t d = 0; d < size; ++d) {
    const double value = sum[d] / total;
    expected.value.push_back(value);
    expected.bound.push_back(1.02 * (error[d] + std::abs(value) * total_error + lost[d]) / total);
  }
  return expected;
}

/// On every path, a case in one call equals float64.
void expect_formula(const Shape& shape, const std::vector<Length>& lengths, int64_t page_tokens,
                    Random& random) {
  SCOPED_TRACE(std::to_string(shape.heads) + "/" + std::to_string(shape.kv_heads) + " heads of " +
               std::to_string(shape.head_dim) + " " + dtype_name(shape.dtype) + ", pages of " +
               std::to_string(page_tokens));
  const Problem p(shape, lengths, random);
  std::vector<Expected> expected;
  for (const Sequence& s : p.sequences) {
    for (int64_t i = 0; i < s.length.queries; ++i) {
      for (int64_t h = 0; h < shape.heads; ++h) expected.push_back(expected_head(p, s, i, h));
    }
  }
  for_each_path([&](cpu::MatrixPath path) {
    Cpu cpu(2, path);
    const auto out = run(*cpu.stream, p, whole(p), page_tokens, random);
    size_t at = 0;
    for (size_t s = 0; s < out.size(); ++s) {
      for (int64_t i = 0; i < out[s].rows(); ++i) {
        for (int64_t c = 0; c < out[s].columns(); ++c) {
          const Expected& head = expected[at + static_cast<size_t>(c / shape.head_dim)];
          const auto d = static_cast<size_t>(c % shape.head_dim);
          ASSERT_NEAR(out[s].row(i)[c], head.value[d], head.bound[d])
              << "sequence " << s << " query " << i << " head " << c / shape.head_dim
              << " dimension " << d;
        }
        at += static_cast<size_t>(shape.heads);
      }
    }
  });
}

TEST(Attention, EqualsTheSoftmax) {
  Random random(91);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    expect_formula({4, 4, 64, dtype}, {{1, 1}, {1, 255}, {1, 256}, {1, 257}, {17, 17}, {3, 300}}, 1,
                   random);
    expect_formula({8, 2, 128, dtype}, {{40, 40}, {16, 272}, {0, 9}, {1, 513}, {5, 260}}, 7,
                   random);
    expect_formula({16, 1, 64, dtype}, {{1, 3000}, {2, 1025}, {20, 20}}, 16, random);
    expect_formula({6, 2, 256, dtype}, {{1, 256}, {18, 258}}, 16, random);
    // Shorter than a vector, wider than a panel, odd.
    expect_formula({3, 3, 5, dtype}, {{7, 9}, {1, 258}}, 7, random);
    expect_formula({5, 1, 71, dtype}, {{3, 3}, {2, 511}}, 16, random);
  }
}

/// Sequences of many kinds for the tests of identity.
Problem mixed_problem(DType dtype, Random& random) {
  return Problem({4, 2, 64, dtype},
                 {{1, 1}, {40, 40}, {1, 257}, {37, 300}, {17, 513}, {2, 256}, {1, 700}, {16, 255}},
                 random);
}

TEST(Attention, SequencesStandAlone) {
  Random random(92);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const Problem p = mixed_problem(dtype, random);
    for_each_path([&](cpu::MatrixPath path) {
      expect_rows_stand_alone(
          static_cast<int64_t>(p.sequences.size()), random,
          [&](Stream& stream, const Rows& rows) {
            std::vector<Chunk> chunks;
            for (int64_t r : rows) {
              const Sequence& s = p.sequences[static_cast<size_t>(r)];
              chunks.push_back({&s, 0, s.length.queries});
            }
            std::vector<Bits> bits;
            for (const Matrix<float>& out : run(stream, p, chunks, 16, random)) {
              bits.emplace_back();
              for (const Bits& row : out.bits()) {
                bits.back().insert(bits.back().end(), row.begin(), row.end());
              }
            }
            return bits;
          },
          path);
    });
  }
}

TEST(Attention, ChunksAndPagesDoNotMatter) {
  Random random(93);
  Cpu cpu(2);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const Problem p = mixed_problem(dtype, random);
    const auto expected = run(*cpu.stream, p, whole(p), 16, random);
    for (int64_t page_tokens : {1, 7, 64}) {
      const auto out = run(*cpu.stream, p, whole(p), page_tokens, random);
      for (size_t s = 0; s < out.size(); ++s) {
        EXPECT_EQ(out[s].bits(), expected[s].bits()) << "pages of " << page_tokens;
      }
    }
    for (int64_t chunk_tokens : {1, 3, 15, 16, 18}) {
      std::vector<Chunk> chunks;
      for (const Sequence& s : p.sequences) {
        for (int64_t i = 0; i < s.length.queries; i += chunk_tokens) {
          chunks.push_back({&s, i, std::min(chunk_tokens, s.length.queries - i)});
        }
      }
      const auto out = run(*cpu.stream, p, chunks, 16, random);
      for (size_t c = 0; c < chunks.size(); ++c) {
        const auto s = static_cast<size_t>(chunks[c].sequence - p.sequences.data());
        const std::vector<Bits> all = expected[s].bits();
        const auto first = all.begin() + chunks[c].first;
        EXPECT_EQ(out[c].bits(), std::vector<Bits>(first, first + chunks[c].count))
            << "chunks of " << chunk_tokens << ", sequence " << s;
      }
    }
  }
}

// The tokens of a chunk are computed together, yet the earlier ones must not see that a later one
// overflowed: their keys and values become pages that other requests share.
TEST(Attention, WhatALaterTokenHoldsDoesNotMatter) {
  Random random(94);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const Problem clean({4, 2, 80, dtype}, {{20, 265}}, random);
    for_each_path([&](cpu::MatrixPath path) {
      Cpu cpu(2, path);
      const auto clean_bits = run(*cpu.stream, clean, whole(clean), 16, random).front().bits();
      // Odd and even positions, the first and the last of a part, the last of the sequence.
      for (int64_t bad : {249, 250, 255, 256, 264}) {
        for (const auto& [key, value] : {std::pair{kNaN, 1.0f}, {1.0f, kNaN}, {1.0f, kInfinity}}) {
          Problem p = clean;
          Sequence& s = p.sequences.front();
          std::fill_n(s.k.row(bad), s.k.columns(), key);
          const int64_t d = random.integer(0, p.shape.head_dim - 1);  // one element of each head
          for (int64_t h = 0; h < p.shape.kv_heads; ++h) {
            s.v.row(bad)[h * p.shape.head_dim + d] = value;
          }
          const Matrix<float> out = run(*cpu.stream, p, whole(p), 16, random).front();
          const auto bits = out.bits();
          for (int64_t i = 0; i < s.length.queries; ++i) {
            const auto row = static_cast<size_t>(i);
            if (s.first_position() + i < bad) {
              ASSERT_TRUE(bits[row] == clean_bits[row]) << "position " << bad << " query " << i;
            } else {
              // Those that see it show it.
              for (int64_t c = d; c < out.columns(); c += p.shape.head_dim) {
                ASSERT_FALSE(std::isfinite(out.row(i)[c])) << "position " << bad << " query " << i;
              }
            }
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace tandem::ops
