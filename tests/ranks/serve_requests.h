#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "comm/thread_group.h"
#include "engine/rank_set.h"
#include "tests/ranks/rank_scorer.h"

namespace tandem::ranks {

/// What became of a request.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  engine::FinishReason reason = engine::FinishReason::kError;
  std::string error;
};

/// Requests of all kinds: short and long prompts, greedy and sampled, with logprobs.
std::vector<engine::Request> mixed_requests(int count, int64_t vocabulary, uint64_t seed);

/// Submits the requests at random moments, cancels those whose number is in `cancelled` once they
/// have a token, and waits for all. Ends the test program if nothing is heard for four minutes.
std::vector<Answer> serve_all(engine::EngineClient& client,
                              const std::vector<engine::Request>& requests,
                              const std::vector<size_t>& cancelled, uint64_t seed);

/// All ranks of a layout as threads of this process.
struct ThreadRanks {
  static ThreadRanks start(const ScoredModel& model, const model::Layout& layout,
                           const engine::BalanceLimits& balance = {.window_steps = 1,
                                                                   .interval_steps = 1});
  static ThreadRanks start(const engine::RankSet::Options& options);

  /// Whether the rank's thread is done, in whichever way.
  bool has_left(int rank) const { return left[static_cast<size_t>(rank)]; }

  std::unique_ptr<comm::ThreadGroup> group;
  std::vector<std::atomic<bool>> left;
  /// How often a rank took the leaving of others for a loss.
  std::unique_ptr<std::atomic<int>> regroups = std::make_unique<std::atomic<int>>(0);
  std::unique_ptr<engine::RankSet> set;
};

engine::RankSet::Options set_options(const ScoredModel& model, const model::Layout& layout);

/// The same answers to the bit; those of cancelled requests may be cut short.
void expect_same(const std::vector<Answer>& answers, const std::vector<Answer>& expected,
                 const std::vector<size_t>& cancelled);

}  // namespace tandem::ranks
