#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/result.h"
#include "engine/rank_links.h"
#include "model/expert_stack.h"
#include "model/qwen3.h"
#include "model/weight_source.h"

namespace tandem::engine {

/// When experts are placed anew for their load.
struct BalanceLimits {
  uint32_t window_steps = 1000;    ///< the load counts the last so many steps of an interval
  uint32_t interval_steps = 3000;  ///< from one look at the load to the next
  /// Until the first look, if that is sooner than an interval.
  uint32_t first_steps = std::numeric_limits<uint32_t>::max();
};

/// How far balancing has come: the same on all ranks between steps. RankStatus::expert_pairs is
/// what each of them computed.
struct BalanceStatus {
  uint64_t plan_id = 0;        ///< of the placement in use; grows with every layer that changes
  uint64_t experts_moved = 0;  ///< slots of all ranks that got another expert
  /// In the last window, the mean load of ranks over that of the fullest, each summed over layers,
  /// with the placement of that time. 1: all are equal; 0: no window has ended yet.
  double balance = 0;
};

/// Places the experts of a running model for their load (EPLB), on one rank. Every interval all
/// ranks gather their counts, and each computes the same plan. Layer by layer a thread ("eplb-N")
/// gets the new stack of weights ready beside the steps; once every rank is ready, all switch
/// before the same step (step_header.h, plan id). No result changes by it.
///
/// Plan ids count up from 0, one per layer that changes and one more at the end of a round. The
/// next round begins with the first interval after that. A rank whose weights cannot be read stays
/// as it is, and so do all, which is logged.
///
/// Made and used by the rank's thread, except status().
class ExpertBalancer {
 public:
  /// `model` and `links` outlive it. All ranks of the layout make one, with the same limits.
  ExpertBalancer(const BalanceLimits& limits, model::Qwen3& model, RankLinks& links,
                 std::unique_ptr<model::WeightSource> source);
  ~ExpertBalancer();

  /// Of a leader: the newest plan that its whole tensor-parallel group can use.
  uint64_t ready_plan() const;
  /// Before each step of the group, on all ranks: the plan that leaders agreed on. kInternal when
  /// this rank is not ready for it.
  Result<void> begin_step(uint64_t plan_id);
  /// After each step of the group, on all ranks.
  Result<void> end_step();

  /// On any thread.
  BalanceStatus status() const;

 private:
  /// One layer's new placement, in the order in which they come into use.
  struct Change {
    int64_t layer;
    comm::ExpertPlacement placement;
  };
  Result<void> take_counts();
  void work();
  std::deque<Change> plan();
  Result<void> prepare();

  const BalanceLimits limits_;
  model::Qwen3& model_;
  RankLinks& links_;
  const std::unique_ptr<model::WeightSource> source_;
  model::ExpertReader experts_;

  // The rank's thread:
  uint64_t steps_ = 0;
  bool in_round_ = false;   // from the gathering of counts to the last change
  bool gathering_ = false;  // counts are on their way

  std::vector<uint64_t> loads_;  // [layers, experts], of all ranks; handed over with is_planning_
  std::atomic<uint64_t> plan_id_{0};
  std::atomic<uint64_t> ready_{0};  // the newest plan that this rank can use
  std::atomic<uint64_t> experts_moved_{0};
  std::atomic<double> balance_{0};

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;       // guarded by mutex_
  bool is_planning_ = false;    // guarded by mutex_: loads_ wait for a plan
  bool wants_next_ = false;     // guarded by mutex_: the plan before is in use
  std::deque<Change> changes_;  // guarded by mutex_: that are not yet in use
  std::thread thread_;
};

}  // namespace tandem::engine
