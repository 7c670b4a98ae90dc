#include "engine/expert_balancer.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "comm/plan_experts.h"

namespace tandem::engine {

ExpertBalancer::ExpertBalancer(const BalanceLimits& limits, model::Qwen3& model, RankLinks& links,
                               std::unique_ptr<model::WeightSource> source)
    : limits_{.window_steps = std::min(limits.window_steps, limits.interval_steps),
              .interval_steps = limits.interval_steps,
              .first_steps = std::min(limits.first_steps, limits.interval_steps)},
      model_(model),
      links_(links),
      source_(std::move(source)),
      experts_(model.config(), *source_),
      steps_(limits_.interval_steps - limits_.first_steps),
      loads_(links.comm().chosen_experts().size()) {
  TANDEM_CHECK(limits_.window_steps > 0, "a window has a step");
  TANDEM_CHECK(links.chosen_experts() != nullptr, "a layout that rebalances experts");
  std::ranges::fill(links.comm().chosen_experts(), uint64_t{0});  // of the warm-up
  thread_ = std::thread([this] { work(); });
  const std::string name = fmt::format("eplb-{}", model.shard().rank);
  pthread_setname_np(thread_.native_handle(), name.c_str());
}

ExpertBalancer::~ExpertBalancer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

uint64_t ExpertBalancer::ready_plan() const {
  const uint64_t next = plan_id_ + 1;
  return ready_ >= next && links_.followers_are_ready(next) ? next : plan_id_.load();
}

Result<void> ExpertBalancer::begin_step(uint64_t plan_id) {
  if (plan_id == plan_id_) return {};
  if (plan_id != plan_id_ + 1 || plan_id > ready_) {
    return make_error(Code::kInternal,
                      fmt::format("rank {} is to use placement {} of its experts and is ready for "
                                  "{} only",
                                  model_.shard().rank, plan_id, ready_.load()));
  }
  {
    const std::lock_guard lock(mutex_);
    if (changes_.empty()) {
      in_round_ = false;
    } else {
      const int64_t layer = changes_.front().layer;
      const comm::ExpertPlacement& after = changes_.front().placement;
      experts_moved_ +=
          static_cast<uint64_t>(comm::moved_slots(model_.expert_placement(layer), after));
      model_.switch_experts(layer);
      changes_.pop_front();
      wants_next_ = true;
    }
    plan_id_ = plan_id;
  }
  wake_.notify_all();
  return {};
}

Result<void> ExpertBalancer::end_step() {
  if (gathering_) TANDEM_TRY(take_counts());
  const uint64_t in_interval = ++steps_ % limits_.interval_steps;
  const std::span<uint64_t> counts = links_.comm().chosen_experts();
  if (in_interval == 0 && !in_round_) {
    in_round_ = true;
    gathering_ = true;
    links_.chosen_experts()->start(std::as_bytes(counts));
  }
  if (in_interval == limits_.interval_steps - limits_.window_steps) {
    std::ranges::fill(counts, uint64_t{0});
  }
  return {};
}

/// A step later than they were sent, so nobody waited for them.
Result<void> ExpertBalancer::take_counts() {
  gathering_ = false;
  const std::span<const std::byte> rows = TANDEM_TRY(links_.chosen_experts()->finish());
  const auto* counts = reinterpret_cast<const uint64_t*>(rows.data());
  std::ranges::fill(loads_, uint64_t{0});
  for (size_t i = 0; i < rows.size() / sizeof(uint64_t); ++i)
    loads_[i % loads_.size()] += counts[i];
  {
    const std::lock_guard lock(mutex_);
    is_planning_ = true;
  }
  wake_.notify_all();
  return {};
}

void ExpertBalancer::work() {
  while (true) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return stopping_ || is_planning_ || wants_next_; });
    if (stopping_) return;
    if (is_planning_) {
      lock.unlock();
      std::deque<Change> changes = plan();
      lock.lock();
      changes_ = std::move(changes);
      is_planning_ = false;
    }
    wants_next_ = false;
    lock.unlock();
    if (const Result<void> prepared = prepare(); !prepared.ok()) {
      spdlog::warn("eplb_stopped rank={} plan={} reason=\"{}\"", model_.shard().rank, plan_id_ + 1,
                   prepared.error().what);
      return;
    }
    ready_ = plan_id_ + 1;
    links_.tell_plan_ready(ready_);
  }
}

/// Reads placements that only a switch changes, and none comes before this rank is ready.
std::deque<ExpertBalancer::Change> ExpertBalancer::plan() {
  const model::ModelConfig& c = model_.config();
  const auto experts = static_cast<size_t>(c.experts_count);
  std::deque<Change> changes;
  double mean = 0;
  double fullest = 0;
  for (int64_t layer = 0; layer < c.layers_count; ++layer) {
    if (!c.layer_is_moe[static_cast<size_t>(layer)]) continue;
    const auto loads = std::span(loads_).subspan(static_cast<size_t>(layer) * experts, experts);
    const comm::ExpertPlacement& current = model_.expert_placement(layer);
    const std::vector<double> ranks = comm::rank_loads(current, loads);
    const double most = std::ranges::max(ranks);
    mean += most * comm::balance_of(ranks);
    fullest += most;
    comm::ExpertPlacement planned = comm::plan_experts(current, loads);
    if (planned != current) changes.push_back({layer, std::move(planned)});
  }
  balance_ = fullest == 0 ? 1 : mean / fullest;
  return changes;
}

/// The weights of the next change; at the end of a round there are none.
Result<void> ExpertBalancer::prepare() {
  std::unique_lock lock(mutex_);
  if (changes_.empty()) return {};
  const Change change = changes_.front();
  lock.unlock();
  return model_.prepare_experts(experts_, change.layer, change.placement);
}

BalanceStatus ExpertBalancer::status() const {
  return {.plan_id = plan_id_, .experts_moved = experts_moved_, .balance = balance_};
}

}  // namespace tandem::engine
