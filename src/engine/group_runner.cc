#include "engine/group_runner.h"

#include <utility>

namespace tandem::engine {

GroupRunner::GroupRunner(ModelRunner& model, RankPeers& peers, const Limits& limits,
                         OnLeave on_leave)
    : model_(model), peers_(peers), message_(limits), on_leave_(std::move(on_leave)) {
  announce(false);
}

void GroupRunner::announce(bool has_work) {
  const ExpertBalancer* balancer = peers_.balancer();
  // Other ranks' tokens always travel the same way, so how many they are need not be known.
  peers_.links().lockstep().start({.epoch = ++epoch_,
                                   .plan_id = balancer == nullptr ? 0 : balancer->ready_plan(),
                                   .has_work = has_work ? uint32_t{1} : uint32_t{0},
                                   .path = comm::MoePath::kExchange});
}

/// What all leaders said of the step to come.
Result<bool> GroupRunner::someone_has_work() {
  const comm::StepDecision decision = TANDEM_TRY(peers_.links().lockstep().finish());
  plan_id_ = decision.plan_id;
  return !decision.is_idle;
}

Result<void> GroupRunner::run(uint64_t step, std::span<const BatchItem> items,
                              std::span<ops::SampledRow> sampled) {
  failed_.clear();
  if (lost_) return *lost_;
  while (true) {
    const Result<void> result = run_in_step(step, items, sampled);
    if (result.ok()) break;
    TANDEM_TRY(go_on(result.error()));
    announce(true);
  }
  find_failed(items.size());
  return {};
}

Result<void> GroupRunner::turn(const std::function<bool()>& has_news) {
  if (lost_) return *lost_;
  const Result<void> result = rest(has_news);
  if (result.ok()) return {};
  TANDEM_TRY(go_on(result.error()));
  announce(has_news());
  return {};
}

/// After an error. If it returns, the lockstep is at its beginning, and to be announced to.
Result<void> GroupRunner::go_on(const Error& error) {
  const Result<void> result = peers_.go_on(error, model_);
  if (!result.ok()) lost_ = result.error();
  epoch_ = 0;
  plan_id_ = 0;
  return result;
}

void GroupRunner::find_failed(size_t items_count) {
  for (size_t item = 0; item < items_count; ++item) {
    const auto lost = model_.lost_expert_of(item);
    if (lost) failed_.push_back({item, peers_.error_of(*lost)});
  }
}

Result<void> GroupRunner::run_in_step(uint64_t step, std::span<const BatchItem> items,
                                      std::span<ops::SampledRow> sampled) {
  while (!TANDEM_TRY(someone_has_work())) {
    // Everybody goes to sleep, this rank too: its work came after it had said that it had none.
    comm::Doorbell& bell = peers_.links().doorbell();
    bell.arm();
    bell.ring();
    TANDEM_TRY(bell.wait());
    announce(true);
  }
  TANDEM_TRY(run_group(step, items, true));
  return model_.sample(sampled);
}

Result<void> GroupRunner::rest(const std::function<bool()>& has_news) {
  if (TANDEM_TRY(someone_has_work())) {
    return run_group(0, {}, has_news());
  }
  comm::Doorbell& bell = peers_.links().doorbell();
  bell.arm();
  if (has_news()) bell.ring();
  TANDEM_TRY(bell.wait());
  announce(has_news());
  return {};
}

/// The plan in use is known before the next header names the one after it.
Result<void> GroupRunner::run_group(uint64_t step, std::span<const BatchItem> items,
                                    bool has_more_work) {
  const uint64_t plan_id = plan_id_;
  ExpertBalancer* const balancer = peers_.balancer();
  if (balancer != nullptr) TANDEM_TRY(balancer->begin_step(plan_id));
  announce(has_more_work);
  const model::StepInput input = model_.prepare(items);
  if (comm::Broadcast* const steps = peers_.links().steps(); steps != nullptr) {
    TANDEM_TRY(steps->send(message_.encode({.input = input, .number = step, .plan_id = plan_id})));
  }
  TANDEM_TRY(model_.forward(step, input));
  return balancer == nullptr ? Result<void>() : balancer->end_step();
}

void GroupRunner::append_ranks(std::vector<RankStatus>& ranks) const {
  peers_.append_ranks(model_.tally(), ranks);
}

void GroupRunner::leave() {
  // An empty message is the end, and a good one: a follower of a lost group must learn of the loss
  // instead, though its leader may have noticed first.
  if (peers_.is_ending()) lost_.reset();
  if (!lost_ && peers_.has_links() && peers_.links().steps() != nullptr) {
    static_cast<void>(peers_.links().steps()->send({}));
  }
  on_leave_(lost_);
}

namespace {

/// Until the leader leaves, or an error.
Result<void> follow_steps(ModelRunner& model, RankPeers& peers, const StepMessage& message) {
  ExpertBalancer* const balancer = peers.balancer();
  while (true) {
    const std::span<const std::byte> bytes = TANDEM_TRY(peers.links().steps()->receive());
    if (bytes.empty()) return {};
    const StepMessage::Step step = TANDEM_TRY(message.decode(bytes));
    if (balancer != nullptr) TANDEM_TRY(balancer->begin_step(step.plan_id));
    TANDEM_TRY(model.forward(step.number, step.input));
    if (balancer != nullptr) TANDEM_TRY(balancer->end_step());
    peers.publish(model.tally());
  }
}

}  // namespace

Result<void> follow(ModelRunner& model, RankPeers& peers, const Limits& limits) {
  const StepMessage message(limits);
  while (true) {
    const Result<void> followed = follow_steps(model, peers, message);
    if (followed.ok()) return {};
    const Result<void> went_on = peers.go_on(followed.error(), model);
    if (!went_on.ok() && peers.is_ending()) return {};
    TANDEM_TRY(went_on);
  }
}

}  // namespace tandem::engine
