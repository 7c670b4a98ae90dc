// Goal: what broke for others (docs/field-cases.md, section A) and is the protocol's business does
// not break here. Method: one scripted history per case, of a whole decode group and one or two
// prefill workers in virtual time (testing/cluster.h), whose fakes note every broken promise.
#include <gtest/gtest.h>

#include "cluster/handoff/testing/cluster.h"

namespace tandem::cluster::handoff {
namespace {

using testing::Cluster;
using testing::DecodeHost;
using testing::Shape;

constexpr int64_t kMs = 1000;
constexpr int64_t kSecond = 1000 * kMs;
constexpr uint32_t kPages = 6;

class FieldCases : public ::testing::Test {
 protected:
  void open(const Decoder::Options& options = {}, uint32_t prefillers = 1,
            Shape shape = {.pages = kPages}) {
    cluster_ = std::make_unique<Cluster>(1, shape, options, prefillers);
  }
  void TearDown() override {
    world().tap = nullptr;  // it may see the test's variables
    EXPECT_TRUE(run_until([&] { return cluster_->is_quiet(); }, 120 * kSecond))
        << host().machine().handoffs_count() << " hand-offs are left";
    for (const std::string& finding : world().findings) ADD_FAILURE() << finding;
  }
  testing::World& world() { return cluster_->world; }
  DecodeHost& host() { return cluster_->decoder(); }

  /// A prompt that needs `pages` pages.
  RequestId submit(uint32_t pages, TokenId token = 3) {
    return host().submit(std::vector<TokenId>(pages * world().shape.page_tokens, token), 0);
  }
  bool run_until(const std::function<bool()>& done, int64_t for_us) {
    return world().run_until(done, world().timeline.now_us() + for_us);
  }
  void run_for(int64_t us) {
    world().run_until([] { return false; }, world().timeline.now_us() + us);
  }
  bool run_to_end(RequestId id, int64_t for_us) {
    return run_until([&] { return host().request(id).ends > 0; }, for_us);
  }
  /// Ended without an error, and the fakes found its data right.
  void expect_answer(RequestId id, int64_t for_us = 5 * kSecond) {
    ASSERT_TRUE(run_to_end(id, for_us));
    const auto& request = host().request(id);
    EXPECT_FALSE(request.error) << request.error->what;
    EXPECT_GT(request.runs, 0u);
  }

  std::unique_ptr<Cluster> cluster_;
};

TEST_F(FieldCases, A1_PagesOfAbortedRequestsComeBackThoughNoCompletionDoes) {
  open();
  world().tap = [](const Message& message, bool to_decoder) {
    return !to_decoder || !std::holds_alternative<Drained>(message.body);
  };
  for (uint32_t i = 0; i <= kPages; ++i) {  // more often than there are pages
    const RequestId id = submit(2);
    run_for(3 * kMs);
    host().cancel(id);
    if (i == kPages) world().tap = nullptr;
  }
  expect_answer(submit(kPages), 10 * kSecond);  // needs every page there is
}

TEST_F(FieldCases, A2_CancelsAroundTheEndOfThePrefill) {
  for (int64_t at_us = 0; at_us < 12 * kMs; at_us += 12) {
    open();
    const RequestId id = submit(2);
    run_for(at_us);
    host().cancel(id);
    EXPECT_EQ(host().request(id).ends, 1);
    ASSERT_TRUE(run_until([&] { return cluster_->is_quiet(); }, 5 * kSecond)) << at_us;
    ASSERT_TRUE(world().findings.empty()) << world().findings.front() << " at " << at_us;
  }
}

TEST_F(FieldCases, A3_StaleSourcePagesAreNeverAnAnswer) {
  open({.policy = Policy::kRecompute});
  cluster_->prefiller(0).is_stale = true;
  expect_answer(submit(2));
  EXPECT_EQ(host().machine().counters().not_proved, 1u);
  EXPECT_EQ(host().machine().counters().admitted, 0u);
}

TEST_F(FieldCases, A4_PagesOfAnAbortedRequestRestWhileAWriteIsUnderWay) {
  open();
  cluster_->prefiller(0).holds_writes = true;
  const RequestId aborted = submit(kPages);
  run_for(200 * kMs);
  host().cancel(aborted);
  const RequestId next = submit(kPages, 4);
  run_for(kSecond);
  EXPECT_EQ(host().machine().quarantined_pages(), kPages);
  EXPECT_EQ(host().request(next).handoffs, 0u) << "no page is free for it";
  cluster_->prefiller(0).fly();
  expect_answer(next);
}

TEST_F(FieldCases, A5_NothingIsReleasedBeforeTheWritesToBothRanksAreConfirmed) {
  open({}, 1, {.source_ranks = 2, .target_ranks = 2, .pages = kPages});
  cluster_->prefiller(0).holds_writes = true;
  const RequestId aborted = submit(3);
  run_for(200 * kMs);
  host().cancel(aborted);
  int lost = 0;
  world().tap = [&](const Message& message, bool to_decoder) {  // the first confirmation is lost
    return !to_decoder || !std::holds_alternative<Drained>(message.body) || lost++ > 0;
  };
  run_for(kSecond);
  EXPECT_EQ(host().machine().quarantined_pages(), 3u);
  const int64_t start_us = world().timeline.now_us();
  cluster_->prefiller(0).fly();
  ASSERT_TRUE(run_until([&] { return host().holds_nothing(); }, 5 * kSecond));
  EXPECT_LT(world().timeline.now_us() - start_us, 500 * kMs) << "no whole time-out is waited for";
  EXPECT_GE(lost, 2);
}

TEST_F(FieldCases, A6_OneOfManyWritesThatCannotStartEndsTheWait) {
  for (const Policy policy : {Policy::kFail, Policy::kRecompute}) {
    open({.policy = policy});
    cluster_->prefiller(0).submission_to_fail = 3;
    const RequestId id = submit(4);
    ASSERT_TRUE(run_until([&] { return host().machine().counters().failed == 1; }, kSecond));
    ASSERT_TRUE(run_to_end(id, 5 * kSecond));
    EXPECT_EQ(host().request(id).error.has_value(), policy == Policy::kFail);
  }
}

TEST_F(FieldCases, A7_AFailedTransferIsToldWithinASecondThoughMessagesAreLost) {
  open();
  cluster_->prefiller(0).submission_to_fail = 2;
  int lost = 0;
  world().tap = [&](const Message& message, bool to_decoder) {
    const bool is_heartbeat = std::holds_alternative<Heartbeat>(message.body);
    return !to_decoder || is_heartbeat || lost++ > 2;
  };
  const RequestId id = submit(4);
  ASSERT_TRUE(run_to_end(id, kSecond));
  ASSERT_TRUE(host().request(id).error);
  EXPECT_EQ(host().request(id).error->code, Code::kUnavailable);
  EXPECT_NE(host().request(id).error->what.find("rail 0"), std::string::npos);
  EXPECT_EQ(host().machine().counters().failed, 1u);
}

TEST_F(FieldCases, A12_MessagesOfStrangersAreCounted) {
  open();
  host().machine().on_message({LinkId{123}, Key{0, 1}, Drained{}}, 0);
  cluster_->prefiller(0).machine().on_message({LinkId{123}, Key{0, 1}, Accepted{}}, 0);
  EXPECT_EQ(host().machine().counters().unknown_links, 1u);
  EXPECT_EQ(cluster_->prefiller(0).machine().counters().unknown_links, 1u);
  expect_answer(submit(2));
}

TEST_F(FieldCases, A24_SourcePagesAreHeldUntilTheLastWriteIsDelivered) {
  open();
  cluster_->prefiller(0).holds_writes = true;
  const RequestId id = submit(3);
  run_for(2 * kSecond);  // long computed, not delivered
  EXPECT_FALSE(cluster_->prefiller(0).holds_nothing());
  EXPECT_EQ(host().request(id).ends, 0);
  cluster_->prefiller(0).fly();
  expect_answer(id);
}

TEST_F(FieldCases, A26_AStormOfCancelsLeavesNothingBehind) {
  open({}, 2, {.pages = 40});
  for (int round = 0; round < 4; ++round) {
    std::vector<RequestId> ids;
    for (int i = 0; i < 300; ++i) ids.push_back(submit(1 + i % 3, i % 40));
    for (const RequestId id : ids) {
      run_for(static_cast<int64_t>(world().dice.number(300)));
      host().cancel(id);
    }
    expect_answer(submit(4), 2 * kSecond);
  }
}

TEST_F(FieldCases, A27_PreemptedRequestsAreHandedOffAnewAndEnd) {
  open({}, 1, {.pages = 9});
  const RequestId first = submit(3);
  const RequestId second = submit(3, 4);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(run_until(
        [&] { return host().request(first).state == DecodeHost::State::kRunning; }, kSecond));
    host().preempt(first, 1);
  }
  expect_answer(first);
  expect_answer(second);
  EXPECT_EQ(host().request(first).handoffs, 5u);
}

TEST_F(FieldCases, A33_AKilledPrefillerIsNamedAndOthersGoOn) {
  open({.policy = Policy::kFail}, 2);
  cluster_->prefiller(0).holds_writes = true;
  cluster_->prefiller(1).holds_writes = true;
  std::vector<RequestId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(submit(1, i));
  run_for(300 * kMs);
  cluster_->kill_prefiller(0, 50 * kMs, 5 * kSecond);
  run_for(200 * kMs);
  cluster_->prefiller(1).fly();
  int failed = 0;
  for (const RequestId id : ids) {
    ASSERT_TRUE(run_to_end(id, 3 * kSecond));
    const auto& error = host().request(id).error;
    failed += error.has_value();
    if (!error) continue;
    EXPECT_EQ(error->code, Code::kUnavailable);
    EXPECT_NE(error->what.find("prefill-"), std::string::npos) << error->what;
    EXPECT_NE(error->what.find("in its transfer with 0 of "), std::string::npos) << error->what;
    EXPECT_NE(error->what.find("its process is gone"), std::string::npos) << error->what;
  }
  EXPECT_GT(failed, 0);
  EXPECT_LT(failed, 4);
}

TEST_F(FieldCases, A33_WithRetryNobodyNotices) {
  open({.policy = Policy::kRetry}, 2);
  cluster_->prefiller(0).holds_writes = true;
  std::vector<RequestId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(submit(1, i));
  run_for(300 * kMs);
  cluster_->kill_prefiller(0, 50 * kMs, 5 * kSecond);
  for (const RequestId id : ids) expect_answer(id);
}

TEST_F(FieldCases, A34_WhatADecoderNoLongerWantsIsFreedWithinItsTime) {
  open();
  host().deadline_us = 3 * kSecond;
  cluster_->prefiller(0).compute_us = 10 * kSecond;  // still at it when the client leaves
  world().tap = [](const Message& message, bool to_decoder) {
    return to_decoder || !std::holds_alternative<Cancel>(message.body);
  };
  const RequestId id = submit(4);
  run_for(500 * kMs);
  host().cancel(id);
  EXPECT_FALSE(cluster_->prefiller(0).holds_nothing());
  run_for(2600 * kMs);
  EXPECT_EQ(cluster_->prefiller(0).machine().counters().expired, 1u);
  world().tap = nullptr;
}

/// Not a row: the issue's own case.
TEST_F(FieldCases, APrefillerStoppedForAMinuteCorruptsNothing) {
  for (const bool can_fence : {true, false}) {
    open({.policy = Policy::kRetry}, 1);
    world().faults.can_fence = can_fence;
    run_for(kSecond);
    // The link of a provider that cannot fence is another one: made after the faults are set.
    cluster_->stop(cluster_->prefiller(0).process(), 3 * kSecond);
    run_for(5 * kSecond);
    const RequestId id = submit(3);
    run_for(2 * kMs);  // some slices are written, some are on their way
    cluster_->stop(cluster_->prefiller(0).process(), 60 * kSecond);
    run_for(30 * kSecond);
    EXPECT_EQ(host().machine().quarantined_pages(), can_fence ? 0u : 3u);
    EXPECT_EQ(host().request(id).ends, 1) << "it was computed here meanwhile";
    run_for(40 * kSecond);
    EXPECT_TRUE(cluster_->is_quiet());
    expect_answer(submit(kPages, 4));
    EXPECT_TRUE(world().findings.empty());
  }
}

}  // namespace
}  // namespace tandem::cluster::handoff
