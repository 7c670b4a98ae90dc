#include "engine/group_runner.h"

#include <utility>

namespace tandem::engine {

GroupRunner::GroupRunner(ModelRunner& model, RankLinks& links, const StepTensors::Limits& limits,
                         OnLeave on_leave)
    : model_(model), links_(links), message_(limits), on_leave_(std::move(on_leave)) {
  announce(false);
}

void GroupRunner::announce(bool has_work) {
  // Other ranks' tokens always travel the same way, so how many they are need not be known.
  links_.lockstep().start({.epoch = ++epoch_,
                           .has_work = has_work ? uint32_t{1} : uint32_t{0},
                           .path = comm::MoePath::kExchange});
}

/// What all leaders said of the step to come.
Result<bool> GroupRunner::someone_has_work() {
  return !TANDEM_TRY(links_.lockstep().finish()).is_idle;
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
  announce(true);
  TANDEM_TRY(run_group(items));
  return model_.sample(sampled);
}

Result<void> GroupRunner::rest(const std::function<bool()>& has_news) {
  if (TANDEM_TRY(someone_has_work())) {
    announce(has_news());
    return run_group({});
  }
  links_.doorbell().arm();
  if (has_news()) links_.doorbell().ring();
  TANDEM_TRY(links_.doorbell().wait());
  announce(has_news());
  return {};
}

Result<void> GroupRunner::run_group(std::span<const BatchItem> items) {
  const model::StepInput input = model_.prepare(items);
  if (links_.steps() != nullptr) TANDEM_TRY(links_.steps()->send(message_.encode(input)));
  return model_.forward(input);
}

void GroupRunner::leave() {
  // An empty message is the end, and a good one: a follower of a lost group must learn of the loss
  // instead, though its leader may have noticed first.
  if (!lost_ && links_.steps() != nullptr) static_cast<void>(links_.steps()->send({}));
  on_leave_(lost_);
}

Result<void> follow(ModelRunner& model, RankLinks& links, const StepTensors::Limits& limits) {
  const StepMessage message(limits);
  while (true) {
    const std::span<const std::byte> bytes = TANDEM_TRY(links.steps()->receive());
    if (bytes.empty()) return {};
    TANDEM_TRY(model.forward(TANDEM_TRY(message.decode(bytes))));
  }
}

}  // namespace tandem::engine
