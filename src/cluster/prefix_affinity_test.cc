// Goal: affinity finds the longest prefix that a place was sent, within its bound, and forgets ends
// before beginnings.
// Method: small cases by hand; random ones against a plain list of what was recorded.

#include "cluster/prefix_affinity.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace tandem::cluster {
namespace {

/// FNV-1a: any hash does, and this one needs no library.
uint64_t fnv(std::span<const std::byte> bytes, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325 ^ seed;
  for (const std::byte byte : bytes) {
    hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

constexpr PrefixKeys kKeys{&fnv, 1, 4};
constexpr PlaceId kFirst{1}, kSecond{2};

TEST(PrefixKeys, StandForSaltAndAllTokensBefore) {
  const std::vector<TokenId> prompt{1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto keys = kKeys.of(prompt, "");
  ASSERT_EQ(keys.size(), 2u);  // the ninth token fills no block
  std::vector<TokenId> longer = prompt;
  longer.resize(16, 3);
  const auto more = kKeys.of(longer, "");
  ASSERT_EQ(more.size(), 4u);
  EXPECT_TRUE(std::equal(keys.begin(), keys.end(), more.begin()));
  std::vector<TokenId> other = prompt;
  other[0] = 2;
  EXPECT_NE(kKeys.of(other, "")[1], keys[1]);  // its own block is the same
  EXPECT_NE(kKeys.of(prompt, "salt")[0], keys[0]);
  EXPECT_NE((PrefixKeys{&fnv, 2, 4}.of(prompt, "")[0]), keys[0]);
}

TEST(PrefixAffinity, MatchesThePrefixOfWhatWasSentThere) {
  PrefixAffinity affinity(100);
  affinity.record(kFirst, std::vector<uint64_t>{1, 2, 3});
  EXPECT_EQ(affinity.matched(kFirst, std::vector<uint64_t>{1, 2, 9}), 2u);
  EXPECT_EQ(affinity.matched(kFirst, std::vector<uint64_t>{2, 3}), 2u);
  EXPECT_EQ(affinity.matched(kFirst, std::vector<uint64_t>{9, 1, 2}), 0u);
  EXPECT_EQ(affinity.matched(kSecond, std::vector<uint64_t>{1, 2, 3}), 0u);
  affinity.forget(kFirst);
  affinity.forget(kSecond);
  EXPECT_EQ(affinity.matched(kFirst, std::vector<uint64_t>{1}), 0u);
  EXPECT_EQ(affinity.size(), 0u);
}

TEST(PrefixAffinity, ForgetsTheEndFirstAndWhatIsOldest) {
  PrefixAffinity affinity(5);
  affinity.record(kFirst, std::vector<uint64_t>{1, 2, 3});
  affinity.record(kSecond, std::vector<uint64_t>{1, 2, 3, 4});
  EXPECT_EQ(affinity.size(), 5u);
  EXPECT_EQ(affinity.matched(kFirst, std::vector<uint64_t>{1, 2, 3}), 1u);
  EXPECT_EQ(affinity.matched(kSecond, std::vector<uint64_t>{1, 2, 3, 4}), 4u);
  // Longer than the bound: its beginning is kept.
  affinity.record(kFirst, std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(affinity.matched(kFirst, std::vector<uint64_t>{1, 2, 3, 4, 5, 6}), 5u);
  EXPECT_EQ(affinity.size(), 5u);
}

TEST(PrefixAffinity, RandomRunsAgreeWithAPlainList) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    const size_t bound = 1 + random() % 40;
    PrefixAffinity affinity(bound);
    std::vector<std::pair<uint32_t, uint64_t>> plain;  // the latest last
    for (int step = 0; step < 200; ++step) {
      const PlaceId place{static_cast<uint32_t>(random() % 3)};
      std::vector<uint64_t> keys(random() % 12);
      for (uint64_t& key : keys) key = random() % 15;
      // Keys of one prompt differ, as each stands for another length.
      std::set<uint64_t> seen;
      std::erase_if(keys, [&](uint64_t key) { return !seen.insert(key).second; });
      if (random() % 30 == 0) {
        affinity.forget(place);
        std::erase_if(plain, [&](const auto& entry) { return entry.first == place.value; });
      } else {
        affinity.record(place, keys);
        for (size_t i = std::min(keys.size(), bound); i-- > 0;) {
          std::erase(plain, std::pair(place.value, keys[i]));
          plain.emplace_back(place.value, keys[i]);
        }
        if (plain.size() > bound) {
          plain.erase(plain.begin(), plain.end() - static_cast<std::ptrdiff_t>(bound));
        }
      }
      ASSERT_EQ(affinity.size(), plain.size()) << "seed " << seed << " step " << step;
      size_t matched = 0;
      while (matched < keys.size() &&
             std::find(plain.begin(), plain.end(), std::pair(place.value, keys[matched])) !=
                 plain.end()) {
        ++matched;
      }
      ASSERT_EQ(affinity.matched(place, keys), matched) << "seed " << seed << " step " << step;
    }
  }
}

}  // namespace
}  // namespace tandem::cluster
