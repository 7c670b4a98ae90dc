#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "comm/testing/rank_process.h"
#include "comm/testing/run_ranks.h"

namespace tandem::comm {

inline RendezvousOptions options_for(const io::Endpoint& address, int rank, int ranks) {
  return {.address = address,
          .rank = rank,
          .ranks_count = ranks,
          .heap_bytes = 1 << 20,
          .settings = {{"model", "tiny"}},
          .start_timeout = std::chrono::milliseconds(20'000)};
}

/// Joins and runs the body; what went wrong, empty if nothing did.
inline std::string run_rank(const RendezvousOptions& options, const RankBody& body) {
  auto group = ProcessGroup::join(options);
  if (!group.ok()) return group.error().what;
  const auto result = body((*group)->heap());
  if (result.ok()) return "";
  (*group)->fail(result.error().what);
  return result.error().what;
}

inline std::vector<RankProcess> start_ranks(
    int ranks, const RankBody& body,
    std::chrono::milliseconds start_timeout = std::chrono::milliseconds(20'000)) {
  const io::Endpoint address = free_endpoint();
  std::vector<RankProcess> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    processes.emplace_back([&] {
      auto options = options_for(address, rank, ranks);
      options.start_timeout = start_timeout;
      return run_rank(options, body);
    });
  }
  return processes;
}

}  // namespace tandem::comm
