#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::engine {

/// What one rank has done since it was warmed up, and what it holds.
struct RankStatus {
  int rank = 0;
  uint32_t pages_used = 0;  ///< all ranks of a tensor-parallel group hold the same pages
  uint32_t pages_total = 0;
  uint64_t steps = 0;
  uint64_t idle_steps = 0;    ///< of those, joined without a token of its group
  uint64_t tokens = 0;        ///< of its group: all its ranks count them
  uint64_t expert_pairs = 0;  ///< (token, expert) pairs that its experts computed
  struct Wait {
    std::string_view collective;
    uint64_t ns = 0;
  };
  std::vector<Wait> waits;  ///< since its start, one per collective
};

/// A snapshot for health and metrics.
struct EngineStatus {
  bool ready = false;  ///< a step completed lately, or provably idle
  std::string reason;  ///< why not ready, or what is lost while it goes on; else empty
  /// Ranks that are gone while others go on, by name: "rank 3 of host b (process 4711)".
  std::vector<std::string> lost_ranks;
  uint32_t requests_running = 0;
  uint32_t requests_waiting = 0;
  uint32_t requests_awaiting_kv = 0;  ///< beside the running ones
  uint32_t pages_used = 0;
  uint32_t pages_total = 0;
  uint32_t pages_leased = 0;       ///< of the used ones, kept until they are delivered
  uint32_t pages_quarantined = 0;  ///< of the used ones, kept until no write can land
  // Since the start:
  uint64_t steps = 0;
  uint64_t preemptions = 0;
  uint64_t imported_tokens = 0;  ///< whose K and V another engine computed
  uint64_t prompt_tokens = 0;    ///< computed; prefix hits are not
  uint64_t generated_tokens = 0;
  uint64_t prefix_query_tokens = 0;
  uint64_t prefix_hit_tokens = 0;
  std::vector<RankStatus> ranks;  ///< that this engine leads, itself among them
};

/// Several engines as one: sums, and the ranks of all; ready while one is. The reason is the first
/// one of those that are not, else the first one of all.
EngineStatus sum_of(std::span<const EngineStatus> statuses);

}  // namespace tandem::engine
