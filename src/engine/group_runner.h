#pragma once

#include <functional>
#include <optional>
#include <span>

#include "base/result.h"
#include "engine/batch.h"
#include "engine/model_runner.h"
#include "engine/rank_links.h"
#include "engine/standby.h"
#include "engine/step_message.h"

namespace tandem::engine {

/// Runs steps on the tensor-parallel group that this rank leads, in lockstep with the leaders of
/// the other data-parallel groups: to an engine, one rank. Before each step all leaders have said,
/// one step ahead, whether they have work; while one has, all run the step, with or without tokens.
/// If none has, all sleep until a doorbell rings.
///
/// Used by the engine's thread, but for ring().
class GroupRunner final : public StepRunner, public Standby {
 public:
  /// Takes the rank out of its group, which was lost by an error or has served its time.
  using OnLeave = std::function<void(const std::optional<Error>& lost)>;

  /// `model` and `links` must outlive this. All leaders make one.
  GroupRunner(ModelRunner& model, RankLinks& links, const StepTensors::Limits& limits,
              OnLeave on_leave);

  Result<void> run(std::span<const BatchItem> items, std::span<ops::SampledRow> sampled) override;
  Result<void> turn(const std::function<bool()>& has_news) override;
  void ring() override { links_.doorbell().ring(); }
  /// Lets the followers go, unless the group is lost, and leaves.
  void leave() override;

 private:
  void announce(bool has_work);
  Result<bool> someone_has_work();
  Result<void> run_in_step(std::span<const BatchItem> items, std::span<ops::SampledRow> sampled);
  Result<void> rest(const std::function<bool()>& has_news);
  Result<void> run_group(std::span<const BatchItem> items);

  ModelRunner& model_;
  RankLinks& links_;
  StepMessage message_;
  const OnLeave on_leave_;
  uint64_t epoch_ = 0;
  /// After an error the ranks are no longer at the same place: no step can follow.
  std::optional<Error> lost_;
};

/// Runs on this rank what the leader of its tensor-parallel group sends, until that leaves. An
/// Error means that the group is lost.
Result<void> follow(ModelRunner& model, RankLinks& links, const StepTensors::Limits& limits);

}  // namespace tandem::engine
