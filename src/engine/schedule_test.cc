// Goal: the schedule serves every waiting token, fills the rest with prompts oldest first and never
// exceeds its budget. Method: hand-made states, then random states against those properties.
#include "engine/schedule.h"

#include <gtest/gtest.h>

#include <random>

namespace tandem::engine {
namespace {

std::vector<Chunk> plan(std::vector<SequenceView> running, uint32_t tokens_max) {
  std::vector<Chunk> chunks;
  schedule(running, tokens_max, chunks);
  return chunks;
}

TEST(Schedule, NothingToDo) {
  EXPECT_TRUE(plan({}, 8).empty());
}

TEST(Schedule, DecodesComeFirstWhateverTheirAge) {
  const auto chunks = plan({{100, 0}, {10, 9}, {20, 19}}, 8);
  EXPECT_EQ(chunks, (std::vector<Chunk>{{1, 1}, {2, 1}, {0, 6}}));
}

TEST(Schedule, PromptsShareTheRestOldestFirst) {
  EXPECT_EQ(plan({{5, 0}, {9, 2}, {3, 0}}, 10), (std::vector<Chunk>{{0, 5}, {1, 5}}));
}

TEST(Schedule, AChunkContinuesWhereTheLastEnded) {
  EXPECT_EQ(plan({{10, 8}}, 8), (std::vector<Chunk>{{0, 2}}));
}

TEST(Schedule, RandomStatesKeepTheBudgetAndStarveNoDecode) {
  std::mt19937 random(7);
  for (int round = 0; round < 1000; ++round) {
    std::vector<SequenceView> running(random() % 20);
    for (auto& view : running) {
      view.tokens_known = 1 + random() % 50;
      view.tokens_computed = random() % 2 ? view.tokens_known - 1 : random() % view.tokens_known;
    }
    const uint32_t budget = 20 + random() % 40;
    const auto chunks = plan(running, budget);
    uint32_t used = 0;
    std::vector<int> served(running.size());
    for (const Chunk& chunk : chunks) {
      const SequenceView& view = running[chunk.sequence];
      EXPECT_GE(chunk.tokens, 1u);
      EXPECT_LE(chunk.tokens, view.tokens_known - view.tokens_computed);
      used += chunk.tokens;
      ++served[chunk.sequence];
    }
    EXPECT_LE(used, budget);
    for (size_t i = 0; i < running.size(); ++i) {
      EXPECT_LE(served[i], 1);
      const uint32_t left = running[i].tokens_known - running[i].tokens_computed;
      if (left == 1) {
        EXPECT_EQ(served[i], 1);
      }
      // Room left means that no prompt was passed over.
      if (used < budget) {
        EXPECT_EQ(served[i], 1);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::engine
