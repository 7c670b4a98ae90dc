#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/batch.h"
#include "engine/limits.h"
#include "engine/model_runner.h"
#include "engine/rank_peers.h"
#include "engine/standby.h"
#include "engine/step_message.h"

namespace tandem::engine {

/// Runs steps on the tensor-parallel group that this rank leads, in lockstep with the leaders of
/// the other data-parallel groups: to an engine, one rank. Before each step all leaders have said,
/// one step ahead, whether they have work; while one has, all run the step, with or without tokens.
/// If none has, all sleep until a doorbell rings. A step in which other groups are lost is run
/// again without them.
///
/// Used by the engine's thread, but for ring() and lost_ranks().
class GroupRunner final : public StepRunner, public Standby {
 public:
  /// Takes the rank out of its group, which was lost by an error or has served its time.
  using OnLeave = std::function<void(const std::optional<Error>& lost)>;

  /// `model` and `peers` must outlive this. All leaders make one.
  GroupRunner(ModelRunner& model, RankPeers& peers, const Limits& limits, OnLeave on_leave);

  Result<void> run(uint64_t step, std::span<const BatchItem> items,
                   std::span<ops::SampledRow> sampled) override;
  /// Those that need an expert that is lost.
  std::span<const FailedItem> failed_items() const override { return failed_; }
  Result<void> turn(const std::function<bool()>& has_news) override;
  void ring() override { peers_.ring(); }
  std::vector<std::string> lost_ranks() const override { return peers_.lost_ranks(); }
  /// This rank and its followers, in whichever process.
  void append_ranks(std::vector<RankStatus>& ranks) const override;
  /// Lets the followers go, unless the group is lost, and leaves.
  void leave() override;

 private:
  void announce(bool has_work);
  Result<bool> someone_has_work();
  Result<void> run_in_step(uint64_t step, std::span<const BatchItem> items,
                           std::span<ops::SampledRow> sampled);
  Result<void> rest(const std::function<bool()>& has_news);
  Result<void> run_group(uint64_t step, std::span<const BatchItem> items, bool has_more_work);
  Result<void> go_on(const Error& error);
  void find_failed(size_t items_count);

  ModelRunner& model_;
  RankPeers& peers_;
  StepMessage message_;
  const OnLeave on_leave_;
  std::vector<FailedItem> failed_;
  uint64_t epoch_ = 0;
  uint64_t plan_id_ = 0;  // of the step to come
  /// Once this rank is lost no step can follow.
  std::optional<Error> lost_;
};

/// Runs on this rank what the leader of its tensor-parallel group sends, until that leaves; goes on
/// when other groups are lost. An Error means that this rank is.
Result<void> follow(ModelRunner& model, RankPeers& peers, const Limits& limits);

}  // namespace tandem::engine
