#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "comm/regroup.h"
#include "comm/symmetric_heap.h"
#include "engine/expert_balancer.h"
#include "engine/model_runner.h"
#include "engine/rank_links.h"
#include "engine/rank_tally.h"
#include "engine/step_memory.h"
#include "model/qwen3.h"

namespace tandem::engine {

/// A rank's place among the others of its layout: its links to them, and what balances experts if
/// these follow their load. When data-parallel groups are lost, the others go on: links and
/// balancer are made anew, experts are where the survivors hold them, and some may be nowhere.
/// Used by the rank's thread, but for what says otherwise.
class RankPeers {
 public:
  struct Options {
    int rank = 0;                         ///< number at the start
    comm::SymmetricHeap* heap = nullptr;  ///< outlives this, or ends with the first regroup()
    /// comm/regroup.h; none: a loss of any rank is the end.
    std::function<Result<comm::Regrouped>(const std::string& brings)> regroup;
    /// On any thread: whether this rank and its group were told to end. Others that leave are then
    /// no loss.
    std::function<bool()> is_ending = [] { return false; };
    DType compute = DType::kBF16;
    StepMemory::Options step;
    BalanceLimits balance;
    /// Of the checkpoint, for experts that change their rank.
    std::function<Result<std::unique_ptr<model::WeightSource>>()> make_source;
  };
  /// All ranks of the layout, first thing in their heaps. `model` outlives this.
  static Result<std::unique_ptr<RankPeers>> create(Options options, model::Qwen3& model);

  /// From now on experts follow their load, if the layout says so. After the warm-up of all ranks.
  Result<void> start_balancing();

  RankLinks& links() { return *links_; }
  bool is_ending() const { return options_.is_ending(); }
  bool has_links() const { return links_ != nullptr; }
  ExpertBalancer* balancer() { return balancer_.get(); }

  /// After a step or a rest that ended with `error`. OK: ranks were lost and the others are linked
  /// anew, at the beginning of a lockstep; the step can be run again, which writes the same K and V
  /// to the same places. Otherwise this rank is lost too, unless it is_ending().
  Result<void> go_on(const Error& error, ModelRunner& runner);

  /// What a request hears that needs this expert.
  Error error_of(const model::Qwen3::LostExpert& lost) const;

  /// Of a follower, after a step: shows its leader what it has counted.
  void publish(const RankTally& tally);

  // On any thread:
  /// Of a leader: what it and its followers have counted, also with links that are gone.
  void append_ranks(const RankTally& tally, std::vector<RankStatus>& ranks) const;
  /// Wakes all ranks if they sleep.
  void ring();
  /// Since links were made last; zeros where experts do not follow their load.
  BalanceStatus balance_status() const;
  /// "rank 3 of host b (process 4711)", those with which this rank started and that are gone.
  std::vector<std::string> lost_ranks() const;

 private:
  RankPeers(Options options, model::Qwen3& model);
  Result<void> link(comm::SymmetricHeap& heap);
  void unlink(ModelRunner& runner);
  TallyRow row_of(const RankTally& tally) const;
  Result<void> go_on_among(const comm::Regrouped& regrouped);
  void remember_lost_experts(const std::vector<comm::ExpertPlacement>& before,
                             const comm::Regrouped& regrouped);
  std::vector<comm::ExpertPlacement> placements() const;

  Options options_;
  model::Qwen3& model_;
  std::vector<int> numbers_;  // at the start, of the ranks that are left
  /// By layer and expert: the ranks with which the last copy went.
  std::map<std::pair<int64_t, int32_t>, std::string> lost_with_;

  mutable std::mutex mutex_;  // for other threads, while links are made anew
  std::unique_ptr<RankLinks> links_;
  std::unique_ptr<ExpertBalancer> balancer_;
  TallyRow waits_before_{};              // of heaps that are gone
  std::vector<std::string> lost_ranks_;  // guarded by mutex_
};

}  // namespace tandem::engine
