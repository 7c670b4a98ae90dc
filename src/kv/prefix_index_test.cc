// Goal: the index finds exactly what was inserted under the same salt and prefix, also when every
// key collides, and its table survives any order of erasing.
// Method: by hand with XXH3 and with a hash that is always equal; random erasing of a ProbeTable
// whose keys share few home slots, against std::map.
#include "kv/prefix_index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tandem::kv {
namespace {

using Tokens = std::vector<TokenId>;

uint64_t always_equal(std::span<const std::byte>, uint64_t) {
  return 7;
}

class PrefixIndexTest : public testing::TestWithParam<HashFunction> {
 protected:
  PrefixIndex index_{
      {.pages_total = 8, .page_tokens = 2, .roots_max = 4, .hash = GetParam(), .seed = 1}};
};

TEST_P(PrefixIndexTest, FindsByParentAndTokens) {
  PrefixNode root = index_.open_root("");
  PrefixNode other_root = index_.open_root("salt");
  ASSERT_NE(root, other_root);
  EXPECT_EQ(index_.open_root("salt"), other_root);
  EXPECT_TRUE(index_.insert(root, Tokens{1, 2}, PageId{3}));
  EXPECT_TRUE(index_.insert(other_root, Tokens{1, 2}, PageId{4}));
  EXPECT_TRUE(index_.insert(index_.node(PageId{3}), Tokens{1, 2}, PageId{5}));
  EXPECT_TRUE(index_.insert(root, Tokens{2, 1}, PageId{6}));
  EXPECT_FALSE(index_.insert(root, Tokens{1, 2}, PageId{7}));
  EXPECT_FALSE(index_.contains(PageId{7}));
  index_.check_invariants();

  EXPECT_EQ(index_.find(root, Tokens{1, 2}), PageId{3});
  EXPECT_EQ(index_.find(other_root, Tokens{1, 2}), PageId{4});
  EXPECT_EQ(index_.find(index_.node(PageId{3}), Tokens{1, 2}), PageId{5});
  EXPECT_EQ(index_.find(root, Tokens{2, 1}), PageId{6});
  EXPECT_EQ(index_.find(other_root, Tokens{2, 1}), std::nullopt);
  EXPECT_EQ(index_.find(index_.node(PageId{4}), Tokens{1, 2}), std::nullopt);

  index_.erase(PageId{5});
  EXPECT_EQ(index_.find(index_.node(PageId{3}), Tokens{1, 2}), std::nullopt);
  index_.erase(PageId{3});
  EXPECT_EQ(index_.find(root, Tokens{1, 2}), std::nullopt);
  EXPECT_EQ(index_.find(other_root, Tokens{1, 2}), PageId{4});
  EXPECT_EQ(index_.size(), 2u);
  index_.check_invariants();
}

TEST_P(PrefixIndexTest, PageKeepsItsSalt) {
  PrefixNode root = index_.open_root("a");
  ASSERT_TRUE(index_.insert(root, Tokens{1, 2}, PageId{0}));
  index_.close_root(root);
  PrefixNode other = index_.open_root("b");
  EXPECT_NE(other, root);
  EXPECT_EQ(index_.find(other, Tokens{1, 2}), std::nullopt);
  EXPECT_EQ(index_.open_root("a"), root);
  index_.check_invariants();
}

TEST_P(PrefixIndexTest, MisuseIsCaught) {
  PrefixNode root = index_.open_root("");
  ASSERT_TRUE(index_.insert(root, Tokens{1, 2}, PageId{0}));
  ASSERT_TRUE(index_.insert(index_.node(PageId{0}), Tokens{1, 2}, PageId{1}));
  EXPECT_DEATH(index_.erase(PageId{0}), "outlive its children");
  EXPECT_DEATH(index_.erase(PageId{2}), "not indexed");
  EXPECT_DEATH(index_.insert(root, Tokens{3, 4}, PageId{0}), "indexed already");
  EXPECT_DEATH(index_.insert(index_.node(PageId{2}), Tokens{3, 4}, PageId{3}), "not indexed");
  EXPECT_DEATH((void)index_.find(root, Tokens{1}), "full pages");
  EXPECT_DEATH((void)index_.find(kNoNode, Tokens{1, 2}), "parent node");
}

INSTANTIATE_TEST_SUITE_P(Hashes, PrefixIndexTest, testing::Values(xxh3_hash, always_equal),
                         [](const auto& info) { return info.index == 0 ? "Xxh3" : "Equal"; });

struct HashCall {
  size_t bytes;
  uint64_t seed;
  uint64_t key;
};
std::vector<HashCall> hash_calls;

uint64_t recorded_hash(std::span<const std::byte> bytes, uint64_t seed) {
  hash_calls.push_back({bytes.size(), seed, xxh3_hash(bytes, seed)});
  return hash_calls.back().key;
}

TEST(PrefixIndex, KeysAreChained) {
  PrefixIndex index(
      {.pages_total = 2, .page_tokens = 2, .roots_max = 1, .hash = recorded_hash, .seed = 11});
  hash_calls.clear();
  PrefixNode root = index.open_root("salt");
  ASSERT_TRUE(index.insert(root, Tokens{1, 2}, PageId{0}));
  ASSERT_TRUE(index.insert(index.node(PageId{0}), Tokens{1, 2}, PageId{1}));
  ASSERT_EQ(hash_calls.size(), 3u) << "each node is hashed once";
  EXPECT_EQ(hash_calls[0].bytes, 4u);
  EXPECT_EQ(hash_calls[0].seed, 11u);
  EXPECT_EQ(hash_calls[1].bytes, 2 * sizeof(TokenId));
  EXPECT_EQ(hash_calls[1].seed, hash_calls[0].key) << "a first page's key covers the salt";
  EXPECT_EQ(hash_calls[2].seed, hash_calls[1].key) << "a page's key covers its parent's";
}

TEST(ProbeTable, ErasingLosesNothing) {
  constexpr uint32_t kEntries = 20;
  ProbeTable table(kEntries);
  std::map<uint32_t, uint64_t> model;  // value -> key
  std::mt19937_64 random(5);
  for (int i = 0; i < 50'000; ++i) {
    uint32_t value = random() % (2 * kEntries);
    auto found = model.find(value);
    if (found != model.end()) {
      table.erase(found->second, value);
      model.erase(found);
    } else if (model.size() < kEntries) {
      // Few homes, at the end of the table, so that runs are long and wrap around.
      uint64_t key = (random() % 4 << 32) | (60 + random() % 6);
      table.insert(key, value);
      model[value] = key;
    }
    ASSERT_EQ(table.size(), model.size());
    for (const auto& [present, key] : model) {
      ASSERT_EQ(table.find(key, [&](uint32_t other) { return other == present; }), present);
    }
  }
  EXPECT_DEATH(table.erase(1000, 0), "not in the probe table");
}

}  // namespace
}  // namespace tandem::kv
