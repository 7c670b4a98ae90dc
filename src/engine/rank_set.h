#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "comm/regroup.h"
#include "comm/symmetric_heap.h"
#include "device/device.h"
#include "engine/engine.h"
#include "engine/engine_router.h"
#include "engine/expert_balancer.h"
#include "engine/kv_rank.h"
#include "engine/progress_watch.h"
#include "model/qwen3.h"
#include "model/weight_source.h"

namespace tandem::engine {

/// The ranks of a layout that live in this process, each with a device and a model shard of its
/// own: engines where a rank leads a tensor-parallel group, threads "rank-N" that follow where it
/// does not. Ranks of other processes make the same.
class RankSet {
 public:
  /// A rank's place in its group.
  struct Member {
    int rank = 0;
    comm::SymmetricHeap* heap = nullptr;  ///< outlives the set; null for the only rank of all
    std::function<void()> leave;          ///< the rank is done
    std::function<void(const std::string& reason)> fail;  ///< the rank cannot go on
    /// comm/regroup.h: how it goes on without others; none: it cannot. Ends `heap`.
    std::function<Result<comm::Regrouped>(const std::string& brings)> regroup;
  };
  /// Who moves the K and V of a data-parallel group; outlives the set.
  struct GroupPorts {
    KvSource* source = nullptr;        ///< where requests with KvWay::kImport may come
    StepObserver* observer = nullptr;  ///< where requests with KvWay::kExport may come
  };
  struct Options {
    model::ModelConfig config;
    model::Layout layout;
    Limits limits;  ///< of one data-parallel group
    DType compute = DType::kBF16;
    BalanceLimits balance;  ///< of layouts that rebalance experts
    /// Called once per rank, on its thread, at the same time as for others.
    std::function<Result<std::unique_ptr<Device>>()> make_device;
    std::function<Result<std::unique_ptr<model::WeightSource>>()> make_source;
    /// Called once per data-parallel group that is led in this process, by its number.
    std::function<GroupPorts(int group)> ports = [](int) { return GroupPorts{}; };
    /// Called once, on some thread, when no rank of this process can go on; not while
    /// the set is destroyed.
    std::function<void(const Error&)> on_lost = [](const Error&) {};
  };
  /// What every rank's heap must hold.
  static Result<size_t> heap_bytes(const Options& options);
  /// Loads and warms up all members at once. An Error of one rank is that of all.
  static Result<std::unique_ptr<RankSet>> create(Options options, std::vector<Member> members);
  /// Ends what lives with kUnavailable; ranks of other processes are left. The ranks of this one
  /// leave one after another, which is no loss to those that are still to leave.
  ~RankSet();

  /// All engines of this process; none where every rank follows.
  EngineClient* client() { return engines_.empty() ? nullptr : &*router_; }
  /// A data-parallel group that is led in this process. All of it lives as long as the set; when
  /// that ends, nobody may touch K and V any more.
  struct Group {
    int index = 0;               ///< among the groups with which the layout started
    Engine* engine = nullptr;    ///< requests of this group alone, and its ports
    kv::KvLayout layout;         ///< of its K and V
    std::vector<KvRank*> ranks;  ///< by tensor-parallel rank; null: it is in another process
  };
  std::span<const Group> groups() const { return groups_; }
  /// RankPeers::balance_status of every rank of this process, in their order; none of a rank alone.
  /// On any thread.
  std::vector<BalanceStatus> balance_status() const;
  /// Until every follower of this process was let go, or the group is lost.
  void wait_for_followers();

  struct Rank;

 private:
  explicit RankSet(Options options);
  void find_groups();
  void watch_progress();
  Result<void> start_engine(Rank& rank, Group& group);
  void start_follower(Rank& rank);
  bool is_ending_of(const Member& member) const;
  void end(const Error* error);

  const Options options_;
  std::atomic<bool> is_ending_{false};  // outlives the ranks, which look at it
  std::mutex mutex_;
  size_t ended_count_ = 0;     // guarded by mutex_: ranks of this process
  std::optional<Error> lost_;  // guarded by mutex_: why the first of them ended
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Group> groups_;
  std::vector<GroupPorts> ports_;         // of each of groups_
  std::unique_ptr<ProgressWatch> watch_;  // where a group has an observer
  std::vector<std::unique_ptr<Engine>> engines_;
  std::unique_ptr<EngineRouter> router_;
};

}  // namespace tandem::engine
