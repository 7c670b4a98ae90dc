#include "engine/schedule.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::engine {

void schedule(std::span<const SequenceView> running, uint32_t tokens_max,
              std::vector<Chunk>& chunks) {
  chunks.clear();
  uint32_t budget = tokens_max;
  for (uint32_t i = 0; i < running.size(); ++i) {
    TANDEM_CHECK(running[i].tokens_computed < running[i].tokens_known, "a sequence has work left");
    if (running[i].tokens_known - running[i].tokens_computed > 1) continue;
    TANDEM_CHECK(budget > 0, "a step holds one token of every sequence");
    chunks.push_back({i, 1});
    --budget;
  }
  for (uint32_t i = 0; i < running.size() && budget > 0; ++i) {
    const uint32_t left = running[i].tokens_known - running[i].tokens_computed;
    if (left == 1) continue;
    chunks.push_back({i, std::min(left, budget)});
    budget -= chunks.back().tokens;
  }
}

}  // namespace tandem::engine
