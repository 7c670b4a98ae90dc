// Goal: embed copies table rows exactly (embed.h), whatever bits they hold, and writes nothing
// else. Method: tables of random bits, so that NaN, infinities, subnormals and -0 occur; the
// expected bits are the table's own, bf16 as the upper half of a float. No tolerance.
#include "ops/embed/embed.h"

#include "ops/testing/ops_test_support.h"

namespace tandem::ops {
namespace {

using namespace testing;

/// A table of random bits as the op takes it, and as the f32 bits that must come out.
struct Table {
  Table(DType dtype, int64_t vocabulary, int64_t hidden, Random& random) {
    for (int64_t i = 0; i < vocabulary * hidden; ++i) {
      const auto word = static_cast<uint32_t>(random.integer(0, UINT32_MAX));
      f32.push_back(dtype == DType::kF32 ? word : word & 0xffff0000u);
      b16.push_back(static_cast<uint16_t>(word >> 16));
    }
    void* data = dtype == DType::kF32 ? static_cast<void*>(f32.data()) : b16.data();
    tensor = {.data = data, .dtype = dtype, .rank = 2, .shape = {vocabulary, hidden}};
  }
  std::vector<uint32_t> f32;
  std::vector<uint16_t> b16;
  AnyTensor tensor;
};

void expect_rows(DType dtype, int64_t tokens_count, int64_t hidden, cpu::MatrixPath path,
                 Random& random) {
  constexpr int64_t kVocabulary = 19;
  SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + std::to_string(hidden));
  const Table table(dtype, kVocabulary, hidden, random);
  std::vector<int32_t> tokens;
  for (int64_t t = 0; t < tokens_count; ++t) {
    tokens.push_back(static_cast<int32_t>(random.integer(0, kVocabulary - 1)));
  }
  tokens.front() = kVocabulary - 1;
  tokens.back() = 0;
  for (int threads : {1, 2, 3}) {
    Cpu cpu(threads, path);
    Matrix<float> out(tokens_count, hidden);
    ASSERT_TRUE(
        embed(*cpu.stream, {.tokens = view_of(tokens), .table = table.tensor, .out = out.view()})
            .ok());
    EXPECT_TRUE(out.margins_untouched());
    for (int64_t t = 0; t < tokens_count; ++t) {
      const uint32_t* expected =
          &table.f32[static_cast<size_t>(tokens[static_cast<size_t>(t)] * hidden)];
      ASSERT_EQ(0, std::memcmp(out.row(t), expected, static_cast<size_t>(hidden) * sizeof(float)))
          << "token " << t;
    }
  }
}

TEST(Embed, CopiesEveryBit) {
  Random random(41);
  for_each_path([&](cpu::MatrixPath path) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      expect_rows(dtype, 1, 1, path, random);
      expect_rows(dtype, 5, 37, path, random);
      expect_rows(dtype, 100, 256, path, random);
    }
  });
}

TEST(Embed, APartOfTheTableGivesTheNeutralRowForOthers) {
  Random random(42);
  const Table table(DType::kBF16, 4, 37, random);  // tokens 10 to 13
  std::vector<int32_t> tokens = {9, 10, 13, 14, 0};
  Cpu cpu(2, cpu::best_matrix_path());
  Matrix<float> out(5, 37);
  ASSERT_TRUE(embed(*cpu.stream, {.tokens = view_of(tokens),
                                  .table = table.tensor,
                                  .first_token = 10,
                                  .is_part = true,
                                  .out = out.view()})
                  .ok());
  const std::vector<float> neutral(37, -0.0f);
  for (int64_t t : {0, 3, 4}) EXPECT_EQ(0, std::memcmp(out.row(t), neutral.data(), 37 * 4));
  EXPECT_EQ(0, std::memcmp(out.row(1), &table.f32[0], 37 * 4));
  EXPECT_EQ(0, std::memcmp(out.row(2), &table.f32[3 * 37], 37 * 4));
}

}  // namespace
}  // namespace tandem::ops
