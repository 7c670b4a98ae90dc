// Goal: whoever is left of a group meets again and works with the same bits as before, whoever died
// and when; ranks that cannot go on without the dead end with its name; nobody hangs. Method: this
// program forks ranks (before it has threads) that work for ever and regroup whenever somebody is
// gone; others are killed, one or several, at random points, also in the middle of a reunion. Then
// the same between threads, one of which gives up.
#include "comm/regroup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>
#include <vector>

#include "comm/all_gather/all_gather.h"
#include "comm/barrier/barrier.h"
#include "comm/process_group.h"
#include "comm/testing/rank_process.h"
#include "comm/testing/run_ranks.h"

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

constexpr int kCalls = 20;  // that a group works to show that it is whole

/// Gathers and checks what all say, `calls` times (for ever if 0).
Result<void> work(SymmetricHeap& heap, const std::vector<int>& numbers, int calls) {
  auto gather = TANDEM_TRY(AllGather::create(heap, sizeof(uint64_t)));
  auto barrier = TANDEM_TRY(Barrier::create(heap));
  for (int call = 0; calls == 0 || call < calls; ++call) {
    const auto own = static_cast<uint64_t>(call * 100 + numbers[static_cast<size_t>(heap.rank())]);
    gather.start(std::as_bytes(std::span(&own, 1)));
    const auto rows = TANDEM_TRY(gather.finish());
    for (size_t rank = 0; rank < numbers.size(); ++rank) {
      const uint64_t row = reinterpret_cast<const uint64_t*>(rows.data())[rank];
      if (row != static_cast<uint64_t>(call * 100 + numbers[rank])) {
        return make_error(Code::kInternal, "a wrong row");
      }
    }
    TANDEM_TRY(barrier.wait());
  }
  return {};
}

std::vector<int> all_of(int ranks) {
  std::vector<int> numbers;
  for (int rank = 0; rank < ranks; ++rank) numbers.push_back(rank);
  return numbers;
}

/// What a rank does: works until somebody is gone, regroups, and so on until `left` ranks are left,
/// which work a little more and say so.
Result<void> survive(ProcessGroup& group, int ranks, size_t left, int rank) {
  std::vector<int> numbers = all_of(ranks);
  SymmetricHeap* heap = &group.heap();
  while (numbers.size() > left) {
    const auto worked = work(*heap, numbers, 0);
    if (worked.error().code != Code::kUnavailable) return worked;
    const Regrouped regrouped = TANDEM_TRY(group.regroup("from " + std::to_string(rank)));
    numbers = regrouped.ranks;
    heap = regrouped.heap;
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (regrouped.brought[i] != "from " + std::to_string(numbers[i])) {
        return make_error(Code::kInternal, "what was brought came as " + regrouped.brought[i]);
      }
    }
    if (regrouped.losses.size() != static_cast<size_t>(ranks) - numbers.size()) {
      return make_error(Code::kInternal, "not all losses are named");
    }
  }
  return work(*heap, numbers, kCalls);
}

std::vector<RankProcess> start(int ranks, size_t left, int inseparable = 1) {
  const io::Endpoint address = free_endpoint();
  std::vector<RankProcess> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    processes.emplace_back([&]() -> std::string {
      auto group = ProcessGroup::join({.address = address,
                                       .rank = rank,
                                       .ranks_count = ranks,
                                       .heap_bytes = 1 << 16,
                                       .start_timeout = milliseconds(20'000),
                                       .inseparable_ranks = inseparable});
      if (!group.ok()) return group.error().what;
      const auto result = survive(**group, ranks, left, rank);
      if (result.ok()) return "";
      (*group)->fail(result.error().what);
      return result.error().what;
    });
  }
  return processes;
}

TEST(Regroup, AnyRankMayDie) {
  for (const int victim : {0, 1, 3}) {
    SCOPED_TRACE("victim " + std::to_string(victim));
    auto processes = start(4, 3);
    std::this_thread::sleep_for(milliseconds(150));
    const auto begin = steady_clock::now();
    processes[static_cast<size_t>(victim)].signal(SIGKILL);
    for (int rank = 0; rank < 4; ++rank) {
      const std::string told = processes[static_cast<size_t>(rank)].wait();
      if (rank != victim) {
        EXPECT_EQ(told, "") << "rank " << rank;
      }
    }
    EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(3));
  }
}

TEST(Regroup, OneAfterAnotherAndSeveralAtOnce) {
  constexpr unsigned kSeed = 11;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 12; ++round) {
    const int ranks = 3 + static_cast<int>(random() % 3);
    const auto deaths = 1 + random() % static_cast<unsigned>(ranks - 1);
    const auto delay = std::chrono::microseconds(random() % 2 == 0 ? 0 : random() % 400'000);
    SCOPED_TRACE("round " + std::to_string(round) + ": " + std::to_string(deaths) + " of " +
                 std::to_string(ranks) + ", " + std::to_string(delay.count()) + " us apart");
    std::vector<int> order = all_of(ranks);
    std::shuffle(order.begin(), order.end(), random);
    auto processes = start(ranks, static_cast<size_t>(ranks) - deaths);
    std::this_thread::sleep_for(milliseconds(200));
    for (size_t i = 0; i < deaths; ++i) {
      processes[static_cast<size_t>(order[i])].signal(SIGKILL);
      std::this_thread::sleep_for(delay);
    }
    const auto begin = steady_clock::now();
    for (size_t i = 0; i < order.size(); ++i) {
      const std::string told = processes[static_cast<size_t>(order[i])].wait();
      if (i >= deaths) {
        EXPECT_EQ(told, "") << "rank " << order[i];
      }
    }
    EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
  }
}

TEST(Regroup, InseparableRanksEndTogether) {
  for (const int victim : {0, 1, 2, 3}) {
    SCOPED_TRACE("victim " + std::to_string(victim));
    auto processes = start(4, 2, 2);
    std::this_thread::sleep_for(milliseconds(150));
    processes[static_cast<size_t>(victim)].signal(SIGKILL);
    for (int rank = 0; rank < 4; ++rank) {
      const std::string told = processes[static_cast<size_t>(rank)].wait();
      if (rank == victim) continue;
      if (rank / 2 != victim / 2) {
        EXPECT_EQ(told, "");
        continue;
      }
      EXPECT_THAT(told, HasSubstr("rank " + std::to_string(victim) + " of host "));
      EXPECT_THAT(told, HasSubstr("rank " + std::to_string(rank) + " cannot go on without it"));
    }
  }
}

TEST(Regroup, AStoppedRankIsWaitedFor) {
  auto processes = start(4, 3);
  std::this_thread::sleep_for(milliseconds(150));
  processes[1].signal(SIGSTOP);
  processes[0].signal(SIGKILL);
  std::this_thread::sleep_for(milliseconds(2500));
  processes[1].signal(SIGCONT);
  for (const size_t rank : {1, 2, 3}) EXPECT_EQ(processes[rank].wait(), "");
}

/// A thread that works, gives up at some point if it is the victim, and regroups if it is not.
Result<void> survive_thread(ThreadGroup& group, int rank, int victim) {
  std::vector<int> numbers = all_of(group.ranks_count());
  if (rank == victim) {
    TANDEM_TRY(work(group.heap(rank), numbers, kCalls));
    group.fail(rank, "the test ended it");
    return {};
  }
  const auto worked = work(group.heap(rank), numbers, 0);
  if (worked.error().code != Code::kUnavailable) return worked;
  const auto regrouped = group.regroup(rank, std::to_string(rank));
  if (!regrouped.ok()) {
    group.fail(rank, regrouped.error().what);
    return regrouped.error();
  }
  return work(*regrouped->heap, regrouped->ranks, kCalls);
}

TEST(Regroup, ThreadsGoOnWithoutOneThatGaveUp) {
  for (const int inseparable : {1, 2}) {
    for (const int victim : {0, 3}) {
      auto group = ThreadGroup::create(
          {.ranks_count = 4, .heap_bytes = 1 << 16, .inseparable_ranks = inseparable});
      std::vector<Result<void>> results(4);
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < 4; ++rank) {
        threads.emplace_back([&, rank] {
          results[static_cast<size_t>(rank)] = survive_thread(**group, rank, victim);
        });
      }
      threads.clear();
      for (int rank = 0; rank < 4; ++rank) {
        const auto& result = results[static_cast<size_t>(rank)];
        const bool ends = rank != victim && rank / inseparable == victim / inseparable;
        EXPECT_EQ(result.ok(), !ends) << (result.ok() ? "" : result.error().what);
      }
    }
  }
}

TEST(Regroup, AWelcomeThatLacksTheGuestIsAnError) {
  using Parts = std::vector<std::string>;
  const std::string key = "regroup-test-" + std::to_string(getpid());
  for (const Parts& parts : {Parts{}, Parts{"0", "x"}, Parts{"0", "x", "1"}, Parts{"7", "x"}}) {
    auto leader = listen_for_survivors(key, 0).value();
    auto own = listen_for_survivors(key, 1).value();
    const std::jthread leads([&] {
      const auto deadline = steady_clock::now() + milliseconds(10'000);
      Connection guest(std::move(**leader.accept(deadline)));
      guest.receive(deadline).value();
      guest.send({.kind = Message::Kind::kWelcome, .parts = parts}, deadline).value();
      (void)guest.receive(deadline).ok();  // its end
    });
    Roster roster({{"here", 1}, {"here", 2}}, 1);
    const ReunionOptions options{.key = key, .rank = 1, .heap_bytes = 4096};
    const auto met = meet_again(options, own, roster);
    ASSERT_FALSE(met.ok());
    EXPECT_EQ(met.error().code, Code::kDataLoss);
  }
}

}  // namespace
}  // namespace tandem::comm
