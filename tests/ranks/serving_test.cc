// Goal: engines over many ranks answer as one rank does, to the bit of every logprob, whatever
// arrives when; idle ranks join, the idle group sleeps, experts change their ranks while requests
// run, and the loss of a rank is told to all. Method: ranks are threads; mixed requests at random
// moments, some cancelled, in two bursts with rest between; the answers of one rank are the
// reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/ranks/serve_requests.h"
#include "tests/ranks/test_models.h"

namespace tandem::ranks {
namespace {

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Experts changed their ranks several times, and all ranks know of the same changes.
void expect_moved(const engine::RankSet& set, const model::Layout& layout) {
  const auto agree = [](const engine::BalanceStatus& a, const engine::BalanceStatus& b) {
    return a.plan_id == b.plan_id && a.experts_moved == b.experts_moved && a.balance == b.balance;
  };
  std::vector<engine::BalanceStatus> ranks;
  const auto start = std::chrono::steady_clock::now();
  do {  // the group still falls asleep
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ranks = set.balance_status();
    ASSERT_EQ(ranks.size(), static_cast<size_t>(layout.ranks_count()));
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  } while (!std::ranges::all_of(ranks, [&](const auto& rank) { return agree(rank, ranks[0]); }));
  EXPECT_GE(ranks[0].plan_id, 4u);
  EXPECT_GE(ranks[0].experts_moved, 4u);
  EXPECT_GT(ranks[0].balance, 0.0);
  EXPECT_LE(ranks[0].balance, 1.0);
  std::printf("%llu placements, %llu experts moved, balance %.2f\n",
              static_cast<unsigned long long>(ranks[0].plan_id),
              static_cast<unsigned long long>(ranks[0].experts_moved), ranks[0].balance);
}

void expect_served(const ScoredModel& model, const model::Layout& layout, uint64_t seed) {
  SCOPED_TRACE("TP" + std::to_string(layout.tensor_parallel) + " x DP" +
               std::to_string(layout.data_parallel) + " seed " + std::to_string(seed));
  const auto requests = mixed_requests(24, model.config.vocab_size, seed);
  const std::vector<size_t> cancelled = {3, 11, 12, 20};
  const std::vector<Answer> expected =
      serve_all(*ThreadRanks::start(model, {}).set->client(), requests, {}, seed);
  const ThreadRanks ranks = ThreadRanks::start(model, layout);
  for (int burst = 0; burst < 2; ++burst) {
    expect_same(serve_all(*ranks.set->client(), requests, cancelled, seed), expected, cancelled);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const engine::EngineStatus status = ranks.set->client()->status();
  EXPECT_TRUE(status.ready);
  if (!layout.rebalances_experts) return;
  EXPECT_EQ(status.ranks.size(), static_cast<size_t>(layout.ranks_count()));
  for (const engine::RankStatus& rank : status.ranks) EXPECT_GT(rank.expert_pairs, 0u);
  expect_moved(*ranks.set, layout);
}

TEST(Serving, TensorParallel) {
  expect_served(tiny_moe(DType::kBF16), {2, 1}, 1);
  expect_served(random_model({}, DType::kF32), {4, 1}, 2);
}

TEST(Serving, DataParallel) {
  expect_served(tiny_moe(DType::kBF16), {1, 2}, 3);
  expect_served(random_model({.dense_columns = 512}, DType::kF32), {1, 4}, 4);
}

TEST(Serving, TensorParallelInsideDataParallel) {
  expect_served(random_model({}, DType::kBF16), {2, 2}, 5);
}

TEST(Serving, UnevenExperts) {
  expect_served(random_model({.experts = 30}, DType::kBF16), {1, 8}, 6);
  expect_served(random_model({.experts = 128, .experts_per_token = 8}, DType::kF32), {1, 12}, 7);
}

TEST(Serving, CopiesOfExperts) {
  expect_served(tiny_moe(DType::kBF16), {2, 1, 4}, 8);
  // More ranks than experts.
  expect_served(random_model({.experts = 3, .experts_per_token = 2}, DType::kF32), {1, 4, 2}, 9);
}

TEST(Serving, ExpertsThatFollowTheirLoadAtEveryStep) {
  expect_served(tiny_moe(DType::kBF16), {1, 2, 4, true}, 10);
  expect_served(tiny_moe(DType::kF32), {2, 1, 4, true}, 11);
  expect_served(random_model({}, DType::kBF16), {1, 4, 4, true}, 12);
  expect_served(random_model({}, DType::kF32), {2, 2, 4, true}, 13);
  expect_served(random_model({.experts = 30}, DType::kBF16), {2, 2, 0, true}, 14);
}

TEST(Serving, TheFullestRankGetsLess) {
  const ScoredModel model = tiny_moe(DType::kBF16);
  const ThreadRanks ranks =
      ThreadRanks::start(model, {1, 4, 4, true}, {.window_steps = 60, .interval_steps = 60});
  const auto requests = mixed_requests(24, model.config.vocab_size, 3);
  // The same requests again and again: their experts are known after an interval or two.
  double at_start = 0;
  double now = 0;
  for (int burst = 0; burst < 60 && (at_start == 0 || now < at_start + 0.15); ++burst) {
    serve_all(*ranks.set->client(), requests, {}, 3);
    now = ranks.set->balance_status()[0].balance;
    if (at_start == 0) at_start = now;
  }
  EXPECT_GT(at_start, 0.0);
  EXPECT_GT(now, at_start + 0.15);
}

TEST(Serving, AnIdleGroupSleeps) {
  const ScoredModel model = random_model({}, DType::kBF16);
  const ThreadRanks ranks = ThreadRanks::start(model, {2, 2});
  const auto requests = mixed_requests(4, model.config.vocab_size, 8);
  serve_all(*ranks.set->client(), requests, {}, 8);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const uint64_t steps = ranks.set->client()->status().steps;
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  EXPECT_LT(cpu_seconds() - before, 0.05);
  EXPECT_EQ(ranks.set->client()->status().steps, steps);
}

TEST(Serving, TheLossOfARankIsToldToAll) {
  const ScoredModel model = random_model({}, DType::kBF16);
  const ThreadRanks ranks = ThreadRanks::start(model, {2, 1});  // losses_test.cc has the others
  ranks.group->fail(1, "the test ended it");
  const auto start = std::chrono::steady_clock::now();
  while (ranks.set->client()->status().ready) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  }
  EXPECT_THAT(ranks.set->client()->status().reason, testing::HasSubstr("rank 1 of host"));
}

TEST(Serving, ALossEndsEveryRankWhoeverNoticesFirst) {
  constexpr int kRanks = 4;
  const ScoredModel model = random_model({}, DType::kBF16);
  for (int round = 0; round < 10; ++round) {
    auto options = set_options(model, {kRanks, 1});
    std::atomic<bool> told = false;  // once the last rank has ended
    options.on_lost = [&](const Error& error) {
      EXPECT_THAT(error.what, testing::HasSubstr("rank 3 of host"));
      told = true;
    };
    auto group =
        comm::ThreadGroup::create(
            {.ranks_count = kRanks, .heap_bytes = engine::RankSet::heap_bytes(options).value()})
            .value();
    std::vector<engine::RankSet::Member> members;
    for (int rank = 0; rank < kRanks; ++rank) {
      members.push_back({.rank = rank,
                         .heap = &group->heap(rank),
                         .leave = [&, rank] { group->leave(rank); },
                         .fail = [&, rank](const std::string& why) { group->fail(rank, why); }});
    }
    const auto set = engine::RankSet::create(options, std::move(members)).value();
    group->fail(3, "the test ended it");
    const auto start = std::chrono::steady_clock::now();
    while (!told && std::chrono::steady_clock::now() - start < std::chrono::seconds(5)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(told) << "round " << round;
  }
}

Result<std::unique_ptr<engine::RankSet>> start_two(comm::ThreadGroup& group,
                                                   engine::RankSet::Options options,
                                                   std::initializer_list<int> order) {
  std::vector<engine::RankSet::Member> members;
  for (int rank : order) {
    members.push_back({.rank = rank,
                       .heap = &group.heap(rank),
                       .leave = [] {},
                       .fail = [&, rank](const std::string& why) { group.fail(rank, why); }});
  }
  return engine::RankSet::create(std::move(options), std::move(members));
}

TEST(Serving, AFaultAtStartIsTheErrorOfAll) {
  const ScoredModel model = random_model({}, DType::kBF16);
  const auto group = comm::ThreadGroup::create({.ranks_count = 2, .heap_bytes = 1 << 12}).value();
  const auto set = start_two(*group, set_options(model, {2, 1}), {0, 1});
  ASSERT_FALSE(set.ok());
  EXPECT_THAT(set.error().what, testing::HasSubstr("make the heap of all ranks larger"));
}

TEST(Serving, ALeaderThatCannotStartEndsTheFollowersThatRun) {
  const ScoredModel model = random_model({}, DType::kBF16);
  engine::RankSet::Options options = set_options(model, {2, 1});
  options.limits.leases_max = UINT32_MAX;
  const size_t bytes = engine::RankSet::heap_bytes(options).value();
  const auto group = comm::ThreadGroup::create({.ranks_count = 2, .heap_bytes = bytes}).value();
  const auto set = start_two(*group, std::move(options), {1, 0});
  ASSERT_FALSE(set.ok());
  EXPECT_THAT(set.error().what, testing::HasSubstr("leases_max"));
}

}  // namespace
}  // namespace tandem::ranks
