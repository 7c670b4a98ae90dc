#include "engine/rank_peers.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <ranges>

#include "base/list_text.h"

namespace tandem::engine {
namespace {

/// After a loss experts are placed anew this soon: some may have no place any more.
constexpr uint32_t kFirstStepsAfterLoss = 32;

std::string as_bytes(const std::vector<int32_t>& words) {
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(int32_t)};
}

std::vector<int32_t> as_words(const std::string& bytes) {
  std::vector<int32_t> words(bytes.size() / sizeof(int32_t));
  std::memcpy(words.data(), bytes.data(), words.size() * sizeof(int32_t));
  return words;
}

}  // namespace

RankPeers::RankPeers(Options options, model::Qwen3& model)
    : options_(std::move(options)),
      model_(model),
      numbers_(static_cast<size_t>(model.shard().layout.ranks_count())) {
  std::iota(numbers_.begin(), numbers_.end(), 0);
}

Result<std::unique_ptr<RankPeers>> RankPeers::create(Options options, model::Qwen3& model) {
  std::unique_ptr<RankPeers> peers(new RankPeers(std::move(options), model));
  TANDEM_TRY(peers->link(*peers->options_.heap));
  return peers;
}

Result<void> RankPeers::link(comm::SymmetricHeap& heap) {
  auto links = TANDEM_TRY(RankLinks::create(heap, model_.shard(), options_.compute, options_.step));
  const std::lock_guard lock(mutex_);
  links_ = std::move(links);
  options_.heap = &heap;
  return {};
}

Result<void> RankPeers::start_balancing() {
  if (!model_.shard().layout.rebalances_experts) return {};
  auto source = TANDEM_TRY(options_.make_source());
  auto balancer =
      std::make_unique<ExpertBalancer>(options_.balance, model_, *links_, std::move(source));
  const std::lock_guard lock(mutex_);
  balancer_ = std::move(balancer);
  return {};
}

void RankPeers::unlink(ModelRunner& runner) {
  runner.use(nullptr);
  // Destroyed the other way round, once the lock is open: the balancer still uses the links.
  std::unique_ptr<RankLinks> links;
  std::unique_ptr<ExpertBalancer> balancer;
  const std::lock_guard lock(mutex_);
  waits_before_ = row_of(RankTally{});
  links = std::move(links_);
  balancer = std::move(balancer_);
}

TallyRow RankPeers::row_of(const RankTally& tally) const {
  TallyRow row = tally_row(tally, links_ == nullptr ? nullptr : &links_->heap());
  for (size_t i = 0; i < row.size(); ++i) row[i] += waits_before_[i];
  return row;
}

void RankPeers::publish(const RankTally& tally) {
  links_->counters().publish(row_of(tally));
}

void RankPeers::append_ranks(const RankTally& tally, std::vector<RankStatus>& ranks) const {
  const std::lock_guard lock(mutex_);
  ranks.push_back(rank_status(options_.rank, row_of(tally)));
  if (links_ == nullptr) return;  // the followers' counters will be where the new links are
  for (int follower = 1; follower < links_->comm().tensor_group().ranks_count(); ++follower) {
    TallyRow row;
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = links_->counters().read(follower, static_cast<int>(i));
    }
    ranks.push_back(rank_status(options_.rank + follower, row));
  }
}

Result<void> RankPeers::go_on(const Error& error, ModelRunner& runner) {
  if (!options_.heap->health().has_losses()) return error;  // a fault of our own
  if (is_ending()) {
    return make_error(Code::kUnavailable, "the server shut down before the request ended");
  }
  if (!options_.regroup || model_.shard().layout.data_parallel == 1) {
    return make_error(error.code,
                      error.what + "; the group cannot go on without it, start the ranks again");
  }
  spdlog::warn("rank_regroups rank={} reason=\"{}\"", options_.rank, error.what);
  unlink(runner);
  const auto regrouped = TANDEM_TRY(options_.regroup(as_bytes(model_.held_experts())));
  const std::vector<comm::ExpertPlacement> before = placements();
  TANDEM_TRY(go_on_among(regrouped));
  remember_lost_experts(before, regrouped);
  numbers_ = regrouped.ranks;
  TANDEM_TRY(link(*regrouped.heap));
  runner.use(&links_->comm());
  options_.balance.first_steps = kFirstStepsAfterLoss;
  TANDEM_TRY(start_balancing());
  const auto lost = regrouped.losses | std::views::transform(&comm::LostRank::name);
  {
    const std::lock_guard lock(mutex_);
    lost_ranks_.assign(lost.begin(), lost.end());
  }
  spdlog::warn("rank_degraded rank={} lost=\"{}\" ranks_left={} experts_lost={}", options_.rank,
               list_text(lost), numbers_.size(), lost_with_.size());
  return {};
}

Result<void> RankPeers::go_on_among(const comm::Regrouped& regrouped) {
  std::vector<std::vector<int32_t>> held;
  for (const std::string& brought : regrouped.brought) held.push_back(as_words(brought));
  const auto own = std::ranges::find(regrouped.ranks, options_.rank) - regrouped.ranks.begin();
  return model_.go_on_among(static_cast<int>(own), held);
}

std::vector<comm::ExpertPlacement> RankPeers::placements() const {
  std::vector<comm::ExpertPlacement> all;
  const model::ModelConfig& c = model_.config();
  for (int64_t layer = 0; layer < c.layers_count; ++layer) {
    if (c.layer_is_moe[static_cast<size_t>(layer)]) all.push_back(model_.expert_placement(layer));
  }
  return all;
}

void RankPeers::remember_lost_experts(const std::vector<comm::ExpertPlacement>& before,
                                      const comm::Regrouped& regrouped) {
  const model::ModelConfig& c = model_.config();
  size_t index = 0;
  for (int64_t layer = 0; layer < c.layers_count; ++layer) {
    if (!c.layer_is_moe[static_cast<size_t>(layer)]) continue;
    const comm::ExpertPlacement& old = before[index++];
    const comm::ExpertPlacement& now = model_.expert_placement(layer);
    for (int32_t expert = 0; expert < now.experts_count(); ++expert) {
      if (now.copies_count(expert) > 0) {
        lost_with_.erase({layer, expert});
        continue;
      }
      std::string& with = lost_with_[{layer, expert}];
      for (int rank = 0; rank < old.ranks_count(); ++rank) {
        const int number = numbers_[static_cast<size_t>(rank)];
        const auto loss = std::ranges::find(regrouped.losses, number, &comm::LostRank::rank);
        if (!old.holds(rank, expert) || loss == regrouped.losses.end()) continue;
        with += (with.empty() ? "" : " and ") + loss->name;
      }
    }
  }
}

Error RankPeers::error_of(const model::Qwen3::LostExpert& lost) const {
  const auto found = lost_with_.find({lost.layer, lost.expert});
  return make_error(
      Code::kUnavailable,
      fmt::format("this request needs expert {} of layer {}, which was lost with {}; start the "
                  "ranks again, with --num-redundant-experts so that each expert has a copy",
                  lost.expert, lost.layer, found == lost_with_.end() ? "a rank" : found->second));
}

void RankPeers::ring() {
  const std::lock_guard lock(mutex_);
  if (links_ != nullptr) links_->doorbell().ring();
}

BalanceStatus RankPeers::balance_status() const {
  const std::lock_guard lock(mutex_);
  return balancer_ == nullptr ? BalanceStatus{} : balancer_->status();
}

std::vector<std::string> RankPeers::lost_ranks() const {
  const std::lock_guard lock(mutex_);
  return lost_ranks_;
}

}  // namespace tandem::engine
