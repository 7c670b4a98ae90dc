#include "engine/rank_set.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/group_runner.h"
#include "engine/storage_kv_rank.h"
#include "engine/validate.h"

namespace tandem::engine {
namespace {

int64_t ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               start)
      .count();
}

}  // namespace

/// Members in the order of their making; destroyed the other way round.
struct RankSet::Rank {
  Member member;
  std::unique_ptr<Device> device;
  std::unique_ptr<model::Qwen3> model;
  std::unique_ptr<RankPeers> peers;  // of one of several
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<StorageKvRank> kv;
  std::unique_ptr<GroupRunner> group;  // of a leader
  std::thread follower;                // of a follower

  Result<void> create(const RankSet& set);
  bool leads() const { return model->shard().tensor_rank() == 0; }
};

Result<void> RankSet::Rank::create(const RankSet& set) {
  const Options& options = set.options_;
  const auto start = std::chrono::steady_clock::now();
  const auto shard = TANDEM_TRY(model::Shard::create(options.config, options.layout, member.rank));
  const StepMemory::Options step = StepMemory::options_of(options.limits, options.compute);
  device = TANDEM_TRY(options.make_device());
  const auto source = TANDEM_TRY(options.make_source());
  model = TANDEM_TRY(model::Qwen3::load(
      *device, shard, *source,
      {.compute = options.compute, .positions_max = int64_t{options.limits.model_length_max}}));
  // Loading and warm-up take minutes for a large model, and the slowest rank holds up all.
  if (!shard.is_whole()) {
    spdlog::info("rank_loaded rank={} ms={}", member.rank, ms_since(start));
    peers = TANDEM_TRY(RankPeers::create({.rank = member.rank,
                                          .heap = member.heap,
                                          .regroup = member.regroup,
                                          .is_ending = [&] { return set.is_ending_of(member); },
                                          .compute = options.compute,
                                          .step = step,
                                          .balance = options.balance,
                                          .make_source = options.make_source},
                                         *model));
  }
  runner = TANDEM_TRY(
      ModelRunner::create(*device, *model,
                          {.limits = options.limits,
                           .kv_dtype = options.compute,
                           .comm = peers == nullptr ? nullptr : &peers->links().comm()}));
  kv = TANDEM_TRY(StorageKvRank::create(*device, runner->kv_storage()));
  if (peers == nullptr) return {};
  spdlog::info("rank_ready rank={} ms={}", member.rank, ms_since(start));
  TANDEM_TRY(peers->start_balancing());
  if (leads()) {
    group = std::make_unique<GroupRunner>(*runner, *peers, options.limits,
                                          [this](const std::optional<Error>& lost) {
                                            if (lost) {
                                              member.fail(lost->what);
                                            } else {
                                              member.leave();
                                            }
                                          });
  }
  return {};
}

Result<size_t> RankSet::heap_bytes(const Options& options) {
  return RankLinks::heap_bytes(TANDEM_TRY(model::Shard::create(options.config, options.layout, 0)),
                               options.compute,
                               StepMemory::options_of(options.limits, options.compute));
}

Result<std::unique_ptr<RankSet>> RankSet::create(Options options, std::vector<Member> members) {
  TANDEM_TRY(validate(options.limits));
  std::unique_ptr<RankSet> set(new RankSet(std::move(options)));
  std::vector<Result<void>> results(members.size());
  for (Member& member : members) {
    set->ranks_.push_back(std::make_unique<Rank>());
    set->ranks_.back()->member = std::move(member);
  }
  // Only now threads: the list no longer moves.
  std::vector<std::thread> threads;
  for (size_t i = 0; i < members.size(); ++i) {
    threads.emplace_back([&, i] {
      Rank& rank = *set->ranks_[i];
      results[i] = rank.create(*set);
      if (!results[i].ok() && rank.member.fail) rank.member.fail(results[i].error().what);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Result<void>& result : results) TANDEM_TRY(result);
  set->find_groups();
  set->watch_progress();
  // In the order of their numbers, leaders as followers.
  auto group = set->groups_.begin();
  for (auto& rank : set->ranks_) {
    if (!rank->leads()) {
      set->start_follower(*rank);
    } else if (Result<void> started = set->start_engine(*rank, *group++); !started.ok()) {
      // Those that run already wait for it.
      if (rank->member.fail) rank->member.fail(started.error().what);
      return started.error();
    }
  }
  std::vector<EngineClient*> clients;
  for (auto& engine : set->engines_) clients.push_back(engine.get());
  set->router_ = std::make_unique<EngineRouter>(std::move(clients));
  return set;
}

/// One for each rank that leads, in the order of the ranks.
void RankSet::find_groups() {
  const int group_ranks = options_.layout.tensor_parallel;
  for (const auto& leader : ranks_) {
    if (!leader->leads()) continue;
    Group group{.index = leader->member.rank / group_ranks, .layout = leader->runner->kv_layout()};
    group.ranks.resize(static_cast<size_t>(group_ranks));
    for (const auto& rank : ranks_) {
      if (rank->member.rank / group_ranks != group.index) continue;
      group.ranks[static_cast<size_t>(rank->member.rank % group_ranks)] = rank->kv.get();
    }
    ports_.push_back(options_.ports(group.index));
    groups_.push_back(std::move(group));
  }
}

/// Puts a watch in front of the groups' observers.
void RankSet::watch_progress() {
  const int group_ranks = options_.layout.tensor_parallel;
  std::vector<ProgressWatch::Group> watched;
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (ports_[i].observer == nullptr) continue;
    ProgressWatch::Group& group = watched.emplace_back();
    group.observer = ports_[i].observer;
    group.layers = groups_[i].layout.layers;
    group.ranks.resize(groups_[i].ranks.size());
    for (const auto& rank : ranks_) {
      if (rank->member.rank / group_ranks != groups_[i].index) continue;
      group.ranks[static_cast<size_t>(rank->member.rank % group_ranks)] =
          [runner = rank->runner.get()] { return runner->layer_progress(); };
    }
  }
  if (watched.empty()) return;
  watch_ = std::make_unique<ProgressWatch>(std::move(watched));
  size_t next = 0;
  for (GroupPorts& ports : ports_) {
    if (ports.observer != nullptr) ports.observer = &watch_->observer(next++);
  }
}

void RankSet::start_follower(Rank& rank) {
  rank.follower = std::thread([this, &rank] {
    const Result<void> followed = follow(*rank.runner, *rank.peers, options_.limits);
    if (followed.ok()) {
      rank.member.leave();
    } else {
      rank.member.fail(followed.error().what);
    }
    end(followed.ok() ? nullptr : &followed.error());
  });
  const std::string name = fmt::format("rank-{}", rank.member.rank);
  pthread_setname_np(rank.follower.native_handle(), name.c_str());
}

Result<void> RankSet::start_engine(Rank& rank, Group& group) {
  const GroupPorts& ports = ports_[static_cast<size_t>(&group - groups_.data())];
  StepRunner* runner = rank.runner.get();
  if (rank.group != nullptr) runner = rank.group.get();
  engines_.push_back(
      TANDEM_TRY(Engine::create({.limits = options_.limits,
                                 .standby = rank.group.get(),
                                 .on_lost = [this](const Error& error) { end(&error); },
                                 .source = ports.source,
                                 .observer = ports.observer},
                                *runner)));
  group.engine = engines_.back().get();
  return {};
}

/// Whether the rank and all that share its tensor-parallel group end with this set. A leader with
/// followers elsewhere ends as their group does: by a message that only linked ranks can send.
bool RankSet::is_ending_of(const Member& member) const {
  if (!is_ending_) return false;
  const int group = member.rank / options_.layout.tensor_parallel;
  const auto here = std::ranges::count_if(ranks_, [&](const std::unique_ptr<Rank>& rank) {
    return rank->member.rank / options_.layout.tensor_parallel == group;
  });
  return here == options_.layout.tensor_parallel;
}

/// One rank of this process is done. Others may go on: they serve for other groups.
void RankSet::end(const Error* error) {
  std::unique_lock lock(mutex_);
  if (error != nullptr && !lost_) lost_ = *error;
  if (is_ending_) return;
  if (++ended_count_ < ranks_.size() || !lost_) return;
  const Error lost = *lost_;
  lock.unlock();
  options_.on_lost(lost);
}

RankSet::RankSet(Options options) : options_(std::move(options)) {}

RankSet::~RankSet() {
  // Before the first of them leaves: the others must not take that for a loss.
  is_ending_ = true;
  // All at once: each waits for the others' steps until they have left.
  for (auto& engine : engines_) engine->stop();
  engines_.clear();
  wait_for_followers();
}

std::vector<BalanceStatus> RankSet::balance_status() const {
  std::vector<BalanceStatus> status;
  for (const auto& rank : ranks_) {
    if (rank->peers != nullptr) status.push_back(rank->peers->balance_status());
  }
  return status;
}

void RankSet::wait_for_followers() {
  for (auto& rank : ranks_) {
    if (rank->follower.joinable()) rank->follower.join();
  }
}

}  // namespace tandem::engine
