// Goal: kv_digest is XXH3-64 of exactly the valid bytes of a slice, head by head, and the same
// whatever the pages of the pool; a changed bit shows, and a bit outside does not.
// Method: pools of random bytes; the expected digest is one call of the library over a copy of the
// bytes that is made number by number. No tolerance.
#include "ops/kv_digest/kv_digest.h"

#include <xxhash.h>

#include "ops/testing/ops_test_support.h"

namespace tandem::ops {
namespace {

using namespace testing;

constexpr int64_t kHeadDim = 5;

/// One sequence in a pool of some page size.
struct Stored {
  Stored(DType dtype, int64_t kv_heads, int64_t page_tokens, int64_t tokens, Random& random)
      : pool(dtype, {tokens / page_tokens + 3, kv_heads, page_tokens, kHeadDim}) {
    pages = random.choose((tokens + page_tokens - 1) / page_tokens, pool.tensor.shape[0]);
    random.shuffle(pages);
    for (std::byte& byte : pool.bytes) byte = static_cast<std::byte>(random.integer(0, 255));
  }
  int64_t slot(int64_t token) const {
    const int64_t page_tokens = pool.tensor.shape[2];
    return pages[static_cast<size_t>(token / page_tokens)] * page_tokens + token % page_tokens;
  }
  const std::byte* element(int64_t token, int64_t head) const {
    return &pool.bytes[pool.offset(slot(token), head, 0)];
  }
  size_t row_bytes() const { return kHeadDim * dtype_bytes(pool.tensor.dtype); }

  Pool pool;
  std::vector<int32_t> pages;  // of the sequence, from its first token
};

struct Wanted {
  int64_t first_head, heads_count, first_token, end_token, slice_tokens;
};

std::vector<uint64_t> digests_of(const Stored& stored, const Wanted& w, int threads = 2) {
  Cpu cpu(threads);
  Matrix<uint64_t> digests(1,
                           (w.end_token - 1) / w.slice_tokens - w.first_token / w.slice_tokens + 1);
  const int64_t page_tokens = stored.pool.tensor.shape[2];
  const std::vector<int32_t> pages(stored.pages.begin() + w.first_token / page_tokens,
                                   stored.pages.begin() + (w.end_token - 1) / page_tokens + 1);
  EXPECT_TRUE(kv_digest(*cpu.stream, {.pool = stored.pool.tensor,
                                      .pages = view_of(pages),
                                      .first_head = w.first_head,
                                      .heads_count = w.heads_count,
                                      .first_token = w.first_token,
                                      .end_token = w.end_token,
                                      .slice_tokens = w.slice_tokens,
                                      .digests = digests.vector()})
                  .ok());
  EXPECT_TRUE(digests.margins_untouched());
  return {digests.row(0), digests.row(0) + digests.columns()};
}

std::vector<uint64_t> reference(const Stored& stored, const Wanted& w) {
  std::vector<uint64_t> digests;
  std::vector<std::byte> bytes;
  for (int64_t token = w.first_token; token < w.end_token;) {
    const int64_t end = std::min((token / w.slice_tokens + 1) * w.slice_tokens, w.end_token);
    bytes.clear();
    for (int64_t head = w.first_head; head < w.first_head + w.heads_count; ++head) {
      for (int64_t t = token; t < end; ++t) {
        const std::byte* row = stored.element(t, head);
        bytes.insert(bytes.end(), row, row + stored.row_bytes());
      }
    }
    digests.push_back(XXH3_64bits(bytes.data(), bytes.size()));
    token = end;
  }
  return digests;
}

TEST(KvDigest, IsTheHashOfTheValidBytes) {
  Random random(71);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (int i = 0; i < 200; ++i) {
      const int64_t kv_heads = random.integer(1, 4);
      const int64_t tokens = random.integer(1, 200);
      const Stored stored(dtype, kv_heads, random.integer(1, 40), tokens, random);
      Wanted w{};
      w.first_head = random.integer(0, kv_heads - 1);
      w.heads_count = random.integer(1, kv_heads - w.first_head);
      w.first_token = random.integer(0, tokens - 1);
      w.end_token = random.integer(w.first_token + 1, tokens);
      w.slice_tokens = random.integer(1, 64);
      const std::vector<uint64_t> expected = reference(stored, w);
      for (int threads : {1, 3}) ASSERT_EQ(digests_of(stored, w, threads), expected) << i;
    }
  }
}

// What a source with pages of 16 and a target with pages of 32 must agree on: the same rows, but
// head 2 of 4 there is head 0 of 1 here.
TEST(KvDigest, DoesNotDependOnPagesOrOnThePlaceOfTheHead) {
  Random random(72);
  const Stored source(DType::kBF16, 4, 16, 100, random);
  Stored target(DType::kBF16, 1, 32, 100, random);
  for (int64_t token = 0; token < 100; ++token) {
    std::memcpy(&target.pool.bytes[target.pool.offset(target.slot(token), 0, 0)],
                source.element(token, 2), source.row_bytes());
  }
  EXPECT_EQ(digests_of(source, {2, 1, 32, 99, 32}), digests_of(target, {0, 1, 32, 99, 32}));
}

TEST(KvDigest, EveryValidBitCountsAndNoOther) {
  Random random(73);
  Stored stored(DType::kF32, 3, 8, 24, random);
  const Wanted wanted{1, 1, 3, 21, 16};
  const std::vector<uint64_t> before = digests_of(stored, wanted);
  ASSERT_EQ(before.size(), 2u);
  std::vector<bool> valid(stored.pool.bytes.size(), false);
  for (int64_t token = wanted.first_token; token < wanted.end_token; ++token) {
    const size_t at = stored.pool.offset(stored.slot(token), 1, 0);
    std::fill_n(valid.begin() + static_cast<ptrdiff_t>(at), stored.row_bytes(), true);
  }
  for (size_t byte = 0; byte < valid.size(); ++byte) {
    const auto bit = static_cast<std::byte>(1 << random.integer(0, 7));
    stored.pool.bytes[byte] ^= bit;
    ASSERT_EQ(digests_of(stored, wanted, 1) != before, valid[byte]) << "byte " << byte;
    stored.pool.bytes[byte] ^= bit;
  }
}

}  // namespace
}  // namespace tandem::ops
