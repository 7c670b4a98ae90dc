#include "engine/group_runner.h"

#include <utility>

namespace tandem::engine {

GroupRunner::GroupRunner(ModelRunner& model, RankLinks& links, ExpertBalancer* balancer,
                         const StepTensors::Limits& limits, std::function<void()> on_leave)
    : model_(model),
      links_(links),
      balancer_(balancer),
      message_(limits),
      on_leave_(std::move(on_leave)) {
  announce(false);
}

void GroupRunner::announce(bool has_work) {
  // Other ranks' tokens always travel the same way, so how many they are need not be known.
  links_.lockstep().start({.epoch = ++epoch_,
                           .plan_id = balancer_ == nullptr ? 0 : balancer_->ready_plan(),
                           .has_work = has_work ? uint32_t{1} : uint32_t{0},
                           .path = comm::MoePath::kExchange});
}

/// What all leaders said of the step to come.
Result<bool> GroupRunner::someone_has_work() {
  const comm::StepDecision decision = TANDEM_TRY(links_.lockstep().finish());
  plan_id_ = decision.plan_id;
  return !decision.is_idle;
}

Result<void> GroupRunner::run(std::span<const BatchItem> items,
                              std::span<ops::SampledRow> sampled) {
  if (lost_) return *lost_;
  const Result<void> result = run_in_step(items, sampled);
  if (!result.ok()) lost_ = result.error();
  return result;
}

Result<void> GroupRunner::turn(const std::function<bool()>& has_news) {
  if (lost_) return *lost_;
  const Result<void> result = rest(has_news);
  if (!result.ok()) lost_ = result.error();
  return result;
}

Result<void> GroupRunner::run_in_step(std::span<const BatchItem> items,
                                      std::span<ops::SampledRow> sampled) {
  while (!TANDEM_TRY(someone_has_work())) {
    // Everybody goes to sleep, this rank too: its work came after it had said that it had none.
    links_.doorbell().arm();
    links_.doorbell().ring();
    TANDEM_TRY(links_.doorbell().wait());
    announce(true);
  }
  TANDEM_TRY(run_group(items, true));
  return model_.sample(sampled);
}

Result<void> GroupRunner::rest(const std::function<bool()>& has_news) {
  if (TANDEM_TRY(someone_has_work())) {
    return run_group({}, has_news());
  }
  links_.doorbell().arm();
  if (has_news()) links_.doorbell().ring();
  TANDEM_TRY(links_.doorbell().wait());
  announce(has_news());
  return {};
}

/// The plan in use is known before the next header names the one after it.
Result<void> GroupRunner::run_group(std::span<const BatchItem> items, bool has_more_work) {
  const uint64_t plan_id = plan_id_;
  if (balancer_ != nullptr) TANDEM_TRY(balancer_->begin_step(plan_id));
  announce(has_more_work);
  const model::StepInput input = model_.prepare(items);
  if (links_.steps() != nullptr) {
    TANDEM_TRY(links_.steps()->send(message_.encode({.input = input, .plan_id = plan_id})));
  }
  TANDEM_TRY(model_.forward(input));
  return balancer_ == nullptr ? Result<void>() : balancer_->end_step();
}

void GroupRunner::leave() {
  // An empty message is the end. If the group is lost, the followers know.
  if (links_.steps() != nullptr) static_cast<void>(links_.steps()->send({}));
  on_leave_();
}

Result<void> follow(ModelRunner& model, RankLinks& links, ExpertBalancer* balancer,
                    const StepTensors::Limits& limits) {
  const StepMessage message(limits);
  while (true) {
    const std::span<const std::byte> bytes = TANDEM_TRY(links.steps()->receive());
    if (bytes.empty()) return {};
    const StepMessage::Step step = TANDEM_TRY(message.decode(bytes));
    if (balancer != nullptr) TANDEM_TRY(balancer->begin_step(step.plan_id));
    TANDEM_TRY(model.forward(step.input));
    if (balancer != nullptr) TANDEM_TRY(balancer->end_step());
  }
}

}  // namespace tandem::engine
