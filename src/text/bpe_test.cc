// Goal: merges happen in the order of the ranks and stay fast in a piece of any length.
// Method: the heap against a plain loop that looks for the best pair each time, over random merge
// tables and pieces of few letters; then a piece of a million letters.
#include "text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tandem::text {
namespace {

std::array<TokenId, 256> identity() {
  std::array<TokenId, 256> tokens;
  for (TokenId i = 0; i < 256; ++i) tokens[static_cast<size_t>(i)] = i;
  return tokens;
}

using Merges = std::map<std::pair<TokenId, TokenId>, MergeTable::Merge>;

std::vector<TokenId> encode_plainly(const Merges& merges, const std::string& piece) {
  std::vector<TokenId> ids;
  for (const char c : piece) ids.push_back(static_cast<uint8_t>(c));
  while (true) {
    size_t best = ids.size();
    MergeTable::Merge best_merge{UINT32_MAX, 0};
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = merges.find({ids[i], ids[i + 1]});
      if (found != merges.end() && found->second.rank < best_merge.rank) {
        best = i;
        best_merge = found->second;
      }
    }
    if (best == ids.size()) return ids;
    ids[best] = best_merge.merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(Bpe, AgreesWithAPlainLoop) {
  std::mt19937 random(3);
  for (int table = 0; table < 200; ++table) {
    Merges merges;
    MergeTable merge_table(40);
    // Token 256 + rank is the product of merge number rank; ranks are shuffled, as files do not
    // promise that a token is made before it is used.
    std::vector<uint32_t> ranks(40);
    for (uint32_t i = 0; i < ranks.size(); ++i) ranks[i] = i;
    std::ranges::shuffle(ranks, random);
    for (TokenId made = 0; made < 40; ++made) {
      const auto pick = [&] {
        const auto k = static_cast<TokenId>(random() % static_cast<uint32_t>(3 + made));
        return k < 3 ? 'a' + k : 256 + k - 3;
      };
      const std::pair<TokenId, TokenId> pair{pick(), pick()};
      const MergeTable::Merge merge{ranks[static_cast<size_t>(made)], 256 + made};
      merges[pair] = merge;
      merge_table.insert(pair.first, pair.second, merge);
    }
    BpeEncoder encoder(merge_table);
    for (int round = 0; round < 50; ++round) {
      std::string piece;
      for (size_t i = random() % 40; i > 0; --i) piece += static_cast<char>('a' + random() % 3);
      std::vector<TokenId> ids;
      encoder.encode(piece, identity(), ids);
      ASSERT_EQ(ids, encode_plainly(merges, piece)) << piece;
    }
  }
}

TEST(Bpe, EqualRanksMergeFromTheLeft) {
  MergeTable merges(1);
  merges.insert('a', 'a', {0, 256});
  BpeEncoder encoder(merges);
  std::vector<TokenId> ids;
  encoder.encode("aaaaa", identity(), ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{256, 256, 'a'}));
}

TEST(Bpe, ALaterMergeOfAPairReplacesTheFirst) {
  MergeTable merges(2);
  merges.insert('a', 'b', {0, 256});
  merges.insert('a', 'b', {1, 257});
  ASSERT_NE(merges.find('a', 'b'), nullptr);
  EXPECT_EQ(merges.find('a', 'b')->merged, 257);
  EXPECT_EQ(merges.find('b', 'a'), nullptr);
}

TEST(Bpe, AMillionLettersTakeNoQuadraticTime) {
  MergeTable merges(16);
  TokenId token = 'a';
  for (uint32_t rank = 0; rank < 16; ++rank) {
    const auto merged = static_cast<TokenId>(256 + rank);
    merges.insert(token, token, {rank, merged});
    token = merged;
  }
  BpeEncoder encoder(merges);
  std::vector<TokenId> ids;
  const auto start = std::chrono::steady_clock::now();
  encoder.encode(std::string(1 << 20, 'a'), identity(), ids);
  const auto elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(ids, std::vector<TokenId>(16, token));
  // It takes about 0.1 s; a loop over all pairs per merge takes many minutes.
  EXPECT_LT(elapsed, std::chrono::seconds(20));
}

}  // namespace
}  // namespace tandem::text
