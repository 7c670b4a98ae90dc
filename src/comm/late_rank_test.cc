// Goal: a rank that others wait for too long is named in their log, with its host and where they
// wait, and waited for; answers are right, and what is in time is not logged. Method: a rank that
// warms up for twice the limit, and, between processes, one that is stopped (SIGSTOP) for longer.
// Each rank's log goes to a text of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>
#include <vector>

#include "comm/all_reduce/all_reduce.h"
#include "comm/barrier/barrier.h"
#include "comm/process_group.h"
#include "comm/testing/rank_process.h"
#include "comm/testing/run_ranks.h"
#include "io/host.h"

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// What this process logs while it lives.
class CapturedLog {
 public:
  CapturedLog() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
  }
  ~CapturedLog() { spdlog::set_default_logger(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> before_;
};

/// Sums that are checked, `calls` times.
Result<void> work(SymmetricHeap& heap, int calls) {
  const auto stream = rank_stream();
  auto reduce = TANDEM_TRY(AllReduce::create(heap, {.floats_max = 64}));
  const auto ranks = static_cast<float>(heap.ranks_count());
  for (int call = 0; call < calls; ++call) {
    std::vector<float> x(64, static_cast<float>(heap.rank() + 1));
    TANDEM_TRY(reduce.run(*stream, x, x));
    for (const float sum : x) {
      if (sum != ranks * (ranks + 1) / 2) return make_error(Code::kInternal, "a wrong sum");
    }
  }
  return {};
}

TEST(LateRank, OneThatWarmsUpTwiceTheLimitIsLoggedAndWaitedFor) {
  constexpr milliseconds kLimit{200};
  const CapturedLog log;
  auto group =
      *ThreadGroup::create({.ranks_count = 3, .heap_bytes = 1 << 16, .late_after = kLimit});
  const auto results = run_ranks(*group, [&](SymmetricHeap& heap) -> Result<void> {
    auto barrier = TANDEM_TRY(Barrier::create(heap));
    if (heap.rank() == 1) std::this_thread::sleep_for(2 * kLimit + milliseconds(50));
    TANDEM_TRY(barrier.wait());
    EXPECT_GE(heap.counters().wait_ns[static_cast<size_t>(WaitKind::kBarrier)],
              heap.rank() == 1 ? 0u : 350'000'000u);
    return work(heap, 100);
  });
  for (const auto& result : results) EXPECT_TRUE(result.ok()) << result.error().what;
  const std::string late = "late=\"rank 1 of host " + io::host_name() + " (process ";
  EXPECT_THAT(log.text(), HasSubstr("comm_rank_late rank=0 " + late));
  EXPECT_THAT(log.text(), HasSubstr("comm_rank_late rank=2 " + late));
  EXPECT_THAT(log.text(), HasSubstr("collective=barrier waited_ms="));
  EXPECT_THAT(log.text(), Not(HasSubstr("late=\"rank 0 ")));
  EXPECT_THAT(log.text(), Not(HasSubstr("collective=all_reduce")));
}

TEST(LateRank, WhatIsInTimeIsNotLogged) {
  const CapturedLog log;
  auto group = *ThreadGroup::create({.ranks_count = 3, .heap_bytes = 1 << 16});
  for (const auto& result :
       run_ranks(*group, [](SymmetricHeap& heap) { return work(heap, 100); })) {
    EXPECT_TRUE(result.ok()) << result.error().what;
  }
  EXPECT_EQ(log.text(), "");
}

TEST(LateRank, AStoppedProcessIsLoggedByAllOthersAndWaitedFor) {
  const io::Endpoint address = free_endpoint();
  std::vector<RankProcess> processes;
  for (int rank = 0; rank < 3; ++rank) {
    processes.emplace_back([&] {
      const CapturedLog log;
      auto group = ProcessGroup::join({.address = address,
                                       .rank = rank,
                                       .ranks_count = 3,
                                       .heap_bytes = 1 << 16,
                                       .late_after = milliseconds(1000)});
      if (!group.ok()) return group.error().what;
      // Long enough to be stopped in the middle, whatever the machine's speed.
      const auto end = std::chrono::steady_clock::now() + milliseconds(4500);
      auto stop = Barrier::create((*group)->heap());
      Result<void> result;
      auto reduce = AllReduce::create((*group)->heap(), {.floats_max = 16});
      const auto stream = rank_stream();
      std::vector<float> x(16);
      // The last element says whether somebody wants to end: all see the same.
      do {
        x.assign(16, static_cast<float>(rank + 1));
        x[15] = std::chrono::steady_clock::now() > end ? 1 : 0;
        result = reduce->run(*stream, x, x);
        if (result.ok() && x[0] != 6) result = make_error(Code::kInternal, "a wrong sum");
      } while (result.ok() && x[15] == 0);
      if (result.ok()) result = stop->wait();
      return (result.ok() ? "done " : result.error().what + " ") + log.text();
    });
  }
  std::this_thread::sleep_for(milliseconds(800));
  processes[2].signal(SIGSTOP);
  std::this_thread::sleep_for(milliseconds(3000));
  processes[2].signal(SIGCONT);
  const std::string name = "late=\"rank 2 of host " + io::host_name() + " (process " +
                           std::to_string(processes[2].process_id()) + ")\"";
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(processes[static_cast<size_t>(rank)].wait(),
                AllOf(HasSubstr("done "), HasSubstr("comm_rank_late rank=" + std::to_string(rank) +
                                                    " " + name + " collective=all_reduce")));
  }
  EXPECT_THAT(processes[2].wait(), HasSubstr("done "));
}

}  // namespace
}  // namespace tandem::comm
