// Goal: every rank decides the same from the same headers, and a group that sleeps wakes for one
// request on any rank, every time. Method: the decision against a table; then whole groups that run
// steps, sleep and are woken by producers on other threads, at random moments, until all requests
// are done: a lost ring would hang.
#include "comm/step_header/step_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "comm/doorbell/doorbell.h"
#include "comm/testing/run_ranks.h"

namespace tandem::comm {
namespace {

StepDecision decided(const std::vector<StepHeader>& headers) {
  return *decide(headers, 100);
}

TEST(StepHeader, TheDecisionIsAFunctionOfAllRows) {
  const StepHeader none{.epoch = 5, .plan_id = 3};
  EXPECT_EQ(
      decided({none, none}),
      (StepDecision{.epoch = 5, .plan_id = 3, .is_idle = true, .path = MoePath::kReplicated}));
  StepHeader waits = none;
  waits.has_work = 1;  // a request without tokens in this step keeps the group awake
  EXPECT_FALSE(decided({none, waits}).is_idle);

  StepHeader some = none;
  some.tokens = 60;
  some.draft_length = 2;
  some.plan_id = 7;
  EXPECT_EQ(decided({none, some}), (StepDecision{.epoch = 5,
                                                 .plan_id = 3,
                                                 .tokens_sum = 60,
                                                 .path = MoePath::kReplicated,
                                                 .draft_length = 2}));
  EXPECT_EQ(decided({some, some}).path, MoePath::kExchange);
  EXPECT_EQ(decided({some, some}).plan_id, 7u);  // all are ready: all switch at this step
  some.path = MoePath::kExchange;
  EXPECT_EQ(decided({none, some}).path, MoePath::kExchange);

  StepHeader ahead = none;
  ahead.epoch = 6;
  const auto lost = decide(std::vector{none, none, ahead}, 100);
  ASSERT_FALSE(lost.ok());
  EXPECT_THAT(lost.error().what, testing::HasSubstr("rank 2 is at step 6 and rank 0 at step 5"));
}

/// One rank of a group that serves requests, each of which is one step's worth of tokens. Outlives
/// the rank's thread, so that a producer may ring late.
struct Rank {
  std::atomic<int> inbox{0};
  std::optional<Doorbell> bell;
  std::atomic<bool> is_ready{false};
  int served = 0;
};

Result<void> serve(SymmetricHeap& heap, Rank& self, uint64_t requests_of_group) {
  auto lockstep = TANDEM_TRY(StepLockstep::create(heap, 0));
  self.bell.emplace(TANDEM_TRY(Doorbell::create(heap)));
  self.is_ready.store(true);
  uint64_t done = 0;
  for (uint64_t epoch = 1; done < requests_of_group; ++epoch) {
    const int taken = self.inbox.exchange(0);
    self.served += taken;
    lockstep.start({.epoch = epoch, .tokens = static_cast<uint32_t>(taken)});
    const auto decision = TANDEM_TRY(lockstep.finish());
    done += decision.tokens_sum;
    if (!decision.is_idle) continue;
    self.bell->arm();
    if (self.inbox.load() > 0) self.bell->ring();
    TANDEM_TRY(self.bell->wait());
  }
  return {};
}

TEST(StepHeader, OneRequestWakesTheWholeGroup) {
  constexpr unsigned kSeed = 3;
  constexpr int kRequests = 300;
  for (int ranks : {1, 2, 3, 8}) {
    auto threads = *ThreadGroup::create({.ranks_count = ranks, .heap_bytes = 1 << 16});
    std::vector<Rank> group(static_cast<size_t>(ranks));
    std::jthread producer([&] {
      std::mt19937 random(kSeed);
      for (const Rank& rank : group) {
        while (!rank.is_ready.load()) std::this_thread::yield();
      }
      for (int i = 0; i < kRequests; ++i) {
        Rank& rank = group[random() % group.size()];
        rank.inbox.fetch_add(1);
        rank.bell->ring();
        if (random() % 2 == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        }
      }
    });
    const auto results = run_ranks(*threads, [&](SymmetricHeap& heap) {
      return serve(heap, group[static_cast<size_t>(heap.rank())], kRequests);
    });
    for (const auto& result : results) EXPECT_TRUE(result.ok()) << result.error().what;
    int served = 0;
    for (const Rank& rank : group) served += rank.served;
    EXPECT_EQ(served, kRequests);
  }
}

}  // namespace
}  // namespace tandem::comm
