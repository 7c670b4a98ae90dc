#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::engine {

/// What the schedule knows of one running sequence.
struct SequenceView {
  uint32_t tokens_known = 0;     ///< prompt and generated so far
  uint32_t tokens_computed = 0;  ///< of those, K and V are in the pool; < tokens_known
};

/// `tokens` next positions of running sequence `sequence` (an index into the views).
struct Chunk {
  uint32_t sequence = 0;
  uint32_t tokens = 0;
  bool operator==(const Chunk&) const = default;
};

/// Decides one step: every sequence that waits for its next token gets it, then what is left of
/// `tokens_max` goes to prompts, oldest first, cut where the budget ends. A pure function of its
/// arguments. `running` is ordered oldest first and pages for all known tokens are held already.
/// `chunks` is cleared first; its capacity is reused.
void schedule(std::span<const SequenceView> running, uint32_t tokens_max,
              std::vector<Chunk>& chunks);

}  // namespace tandem::engine
