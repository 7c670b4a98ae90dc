// Goal: collectives between processes give the same bits as between threads; a killed rank ends
// every other rank's wait in time with its name, a stopped one is waited for. Method: this program
// forks ranks (before it has threads), each reports by its exit code and a line through a pipe;
// kills happen at random points.
#include "comm/process_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "comm/all_gather/all_gather.h"
#include "comm/all_reduce/all_reduce.h"
#include "comm/barrier/barrier.h"
#include "comm/expert_exchange/expert_exchange.h"
#include "comm/testing/process_ranks.h"

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::AnyOf;
using testing::HasSubstr;

/// One token per rank, sent to the first and the last expert and back: x becomes x + x + 2 x.
Result<void> exchange_once(SymmetricHeap& heap, Stream& stream, ExpertExchange& moe,
                           const ExpertPlacement& placement) {
  std::vector<float> x(8, static_cast<float>(heap.rank() + 1));
  std::vector<float> y = x;
  std::vector<int32_t> ids = {0, 2 * heap.ranks_count() - 1};
  std::vector<float> weights = {1, 2};
  const auto tokens = TensorView<float, 2>::make(x.data(), {1, 8});
  const auto experts = TensorView<int32_t, 2>::make(ids.data(), {1, 2});
  const auto received = TANDEM_TRY(
      moe.dispatch(stream, {.x = tokens, .expert_ids = experts, .placement = &placement}));
  std::vector<float> rows;
  for (int64_t row = 0; row < received.row_source.size(); ++row) {
    const float* token = received.x.row(received.row_source[row]);
    rows.insert(rows.end(), token, token + 8);
  }
  TANDEM_TRY(moe.combine(
      stream, {.rows = TensorView<float, 2>::make(rows.data(), {received.row_source.size(), 8}),
               .expert_ids = experts,
               .weights = TensorView<float, 2>::make(weights.data(), {1, 2}),
               .y = TensorView<float, 2>::make(y.data(), {1, 8})}));
  for (const float value : y) {
    if (value != 4 * x[0]) return make_error(Code::kInternal, "a wrong result of an expert");
  }
  return {};
}

/// Calls collectives and checks every result, `calls` times (for ever if 0).
Result<void> work(SymmetricHeap& heap, int calls) {
  const auto stream = rank_stream();
  auto reduce = TANDEM_TRY(AllReduce::create(heap, {.floats_max = 512, .one_shot_floats_max = 64}));
  auto gather = TANDEM_TRY(AllGather::create(heap, sizeof(uint64_t)));
  auto barrier = TANDEM_TRY(Barrier::create(heap));
  const auto placement = TANDEM_TRY(ExpertPlacement::initial(
      {.experts_count = 2 * heap.ranks_count(), .ranks_count = heap.ranks_count()}));
  auto moe = TANDEM_TRY(
      ExpertExchange::create(heap, {.tokens_max = 2, .hidden = 8, .k = 2, .slots_count = 2}));
  const auto ranks = static_cast<uint64_t>(heap.ranks_count());
  for (uint64_t call = 0; calls == 0 || call < static_cast<uint64_t>(calls); ++call) {
    std::vector<float> x(call % 3 == 0 ? 500 : 50, static_cast<float>(heap.rank() + 1));
    TANDEM_TRY(reduce.run(*stream, x, x));
    const uint64_t row = call * ranks + static_cast<uint64_t>(heap.rank());
    gather.start(std::as_bytes(std::span(&row, 1)));
    const auto rows = TANDEM_TRY(gather.finish());
    for (uint64_t rank = 0; rank < ranks; ++rank) {
      if (reinterpret_cast<const uint64_t*>(rows.data())[rank] != call * ranks + rank) {
        return make_error(Code::kInternal, "a wrong row");
      }
    }
    for (const float sum : x) {
      if (sum != static_cast<float>(ranks * (ranks + 1)) / 2) {
        return make_error(Code::kInternal, "a wrong sum");
      }
    }
    TANDEM_TRY(exchange_once(heap, *stream, moe, placement));
    TANDEM_TRY(barrier.wait());
  }
  return {};
}

TEST(ProcessGroup, CollectivesWorkBetweenProcesses) {
  for (int ranks : {1, 2, 3, 4}) {
    auto processes = start_ranks(ranks, [](SymmetricHeap& heap) { return work(heap, 200); });
    for (RankProcess& process : processes) EXPECT_EQ(process.wait(), "");
  }
}

/// Counts ranks that have met, for the process that forks them.
class MetCounter {
 public:
  MetCounter()
      : count_(static_cast<std::atomic<int>*>(::mmap(nullptr, sizeof(std::atomic<int>),
                                                     PROT_READ | PROT_WRITE,
                                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~MetCounter() { ::munmap(count_, sizeof(std::atomic<int>)); }
  void add() { count_->fetch_add(1); }
  void await(int ranks) const {
    while (count_->load() < ranks) std::this_thread::sleep_for(milliseconds(1));
  }

 private:
  std::atomic<int>* count_;
};

/// How many ranks there are, which is killed, and how long after the moment a test waits for.
struct Kill {
  int ranks;
  int victim;
  std::chrono::microseconds delay;

  static Kill draw(std::mt19937& random, unsigned delay_us_max) {
    Kill kill;
    kill.ranks = 2 + static_cast<int>(random() % 3);
    kill.victim = static_cast<int>(random() % static_cast<unsigned>(kill.ranks));
    kill.delay = std::chrono::microseconds(random() % delay_us_max);
    return kill;
  }
  std::string text() const {
    return "victim " + std::to_string(victim) + " of " + std::to_string(ranks) + " after " +
           std::to_string(delay.count()) + " us";
  }
  std::string victim_name() const { return "rank " + std::to_string(victim) + " of host "; }

  /// All others end in time and tell something that matches.
  template <typename Matcher>
  void run(std::vector<RankProcess>& processes, const Matcher& matcher) const {
    std::this_thread::sleep_for(delay);
    const auto start = steady_clock::now();
    processes[static_cast<size_t>(victim)].signal(SIGKILL);
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string told = processes[static_cast<size_t>(rank)].wait();
      if (rank == victim) continue;
      EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(5));
      EXPECT_THAT(told, matcher);
    }
  }
};

TEST(ProcessGroup, AKilledRankIsNamedByAllOthersInTime) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 8; ++round) {
    const Kill kill = Kill::draw(random, 150'000);
    SCOPED_TRACE("round " + std::to_string(round) + " " + kill.text());
    MetCounter met;
    // In even rounds the ranks work, in odd ones they wait for work that never comes.
    const auto body = [&](SymmetricHeap& heap) -> Result<void> {
      met.add();
      if (round % 2 == 0) return work(heap, 0);
      const Flag bell = TANDEM_TRY(heap.allocate_flags(1));
      return heap.wait_idle(bell, 1);
    };
    auto processes = start_ranks(kill.ranks, body);
    met.await(kill.ranks);
    kill.run(processes, HasSubstr(kill.victim_name()));
  }
}

TEST(ProcessGroup, ARankKilledWhileTheyMeetEndsTheOthers) {
  constexpr unsigned kSeed = 11;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 12; ++round) {
    const Kill kill = Kill::draw(random, 6'000);
    SCOPED_TRACE("round " + std::to_string(round) + " " + kill.text());
    auto processes = start_ranks(
        kill.ranks, [](SymmetricHeap& heap) { return work(heap, 0); }, milliseconds(1000));
    // Rank 0 ends with the group; who comes in that moment or later sees only that.
    kill.run(processes,
             AnyOf(HasSubstr(kill.victim_name()), HasSubstr("did not find rank 0 of host "),
                   HasSubstr("ended or fell silent while the ranks were meeting")));
  }
}

TEST(ProcessGroup, AStoppedRankIsWaitedFor) {
  auto processes = start_ranks(3, [](SymmetricHeap& heap) { return work(heap, 1000); });
  std::this_thread::sleep_for(milliseconds(60));
  for (const size_t stopped : {size_t{2}, size_t{0}}) {
    processes[stopped].signal(SIGSTOP);
    std::this_thread::sleep_for(milliseconds(1500));
    processes[stopped].signal(SIGCONT);
  }
  for (RankProcess& process : processes) EXPECT_EQ(process.wait(), "");
}

}  // namespace
}  // namespace tandem::comm
