// Goal: every row of the decoder's tables in docs/handoff.md. Method: a state is reached by events,
// one more event comes, and what the machine does to its ports is compared as text.
#include "cluster/handoff/decoder.h"

#include <gtest/gtest.h>

#include <memory>

#include "cluster/handoff/testing/decoder_log.h"

namespace tandem::cluster::handoff {
namespace {

using testing::DecoderLog;

constexpr LinkId kLink{77};
constexpr RequestId kRequest{5};
constexpr Key kKey{0, 1};  // of the first hand-off
constexpr int64_t kDeadlineUs = 30'000'000;

class DecoderTest : public ::testing::Test {
 protected:
  enum class In { kAsked, kAccepted, kVerifying, kClosing, kAdmitted };

  void open(Decoder::Options options, bool can_fence = true) {
    machine_ = std::make_unique<Decoder>(options, log_);
    machine_->on_link_up(kLink, {"prefill-0", can_fence}, 0);
  }
  Result<std::optional<Key>> start(RequestId request = kRequest, uint32_t attempt = 0) {
    Start start{.tokens = {1, 2, 3, 4, 5}, .pages = {PageId{3}, PageId{9}}, .writes = {4, 6}};
    return machine_->start({request, kLink, attempt, kDeadlineUs, start}, now_us_);
  }
  /// Hands off kRequest up to a state, with an empty log.
  void reach(In state, bool can_fence = true) {
    open({}, can_fence);
    ASSERT_TRUE(start().ok());
    if (state != In::kAsked) message(Accepted{});
    if (state == In::kVerifying || state == In::kAdmitted) arrive();
    if (state == In::kAdmitted) prove();
    if (state == In::kClosing) machine_->cancel(kRequest, now_us_);
    log_.take();
  }
  void message(decltype(Message::body) body, Key key = kKey) {
    machine_->on_message({kLink, key, std::move(body)}, now_us_);
  }
  void arrive() {
    machine_->on_arrived(immediate_of(kKey), 0);
    machine_->on_arrived(immediate_of(kKey), 1);
  }
  void prove() {
    machine_->on_verdict(kKey, 0, {}, now_us_);
    machine_->on_verdict(kKey, 1, {}, now_us_);
  }
  /// Time passes while the link is heard.
  void wait(int64_t us) {
    for (const int64_t end_us = now_us_ + us; now_us_ < end_us;) {
      now_us_ += std::min<int64_t>(100'000, end_us - now_us_);
      message(Heartbeat{}, Key{});
      machine_->on_timer(now_us_);
    }
  }

  DecoderLog log_;
  std::unique_ptr<Decoder> machine_;
  int64_t now_us_ = 1000;
};

const Cause kCause{Code::kResourceExhausted, "no pages left"};

TEST_F(DecoderTest, ArmsBeforeItAsks) {
  open({});
  EXPECT_EQ(start().value(), kKey);
  EXPECT_EQ(log_.take(), "arm 0:4, arm 1:6, Start 1");
  EXPECT_EQ(log_.last_start.time_left_us, static_cast<uint64_t>(kDeadlineUs - now_us_));
}

TEST_F(DecoderTest, AnEmptyRangeIsAdmittedAtOnce) {
  open({});
  Start start{.tokens = {1, 2, 3}, .first_position = 2};
  EXPECT_EQ(machine_->start({kRequest, kLink, 0, 0, start}, 0).value(), std::nullopt);
  Start one{.tokens = {1}};
  EXPECT_EQ(machine_->start({kRequest, kLink, 0, 0, one}, 0).value(), std::nullopt);
  EXPECT_EQ(log_.take(), "admit, admit");
}

TEST_F(DecoderTest, AsksAgainUntilItIsAnswered) {
  reach(In::kAsked);
  wait(200'000);
  EXPECT_EQ(log_.take(), "Start 1");
  EXPECT_EQ(log_.last_start.time_left_us, static_cast<uint64_t>(kDeadlineUs - now_us_));
  message(Accepted{});
  wait(900'000);
  EXPECT_EQ(log_.take(), "");
}

TEST_F(DecoderTest, AsksWhetherItIsStillUnderWay) {
  open({});
  ASSERT_TRUE(start().ok());
  message(Accepted{});
  log_.take();
  wait(1'000'000);
  EXPECT_EQ(log_.take(), "Ask 1");
  message(Accepted{});
  wait(1'000'000);
  EXPECT_EQ(log_.take(), "Ask 1");
  message(Drained{});  // the one that was sent by itself is lost
  arrive();
  wait(3'000'000);
  EXPECT_EQ(log_.take(), "verify");
}

TEST_F(DecoderTest, EveryRankCountsAndEveryRankProves) {
  for (const In state : {In::kAsked, In::kAccepted}) {
    reach(state);
    machine_->on_arrived(immediate_of(kKey), 1);
    machine_->on_arrived(immediate_of(kKey), 1);
    EXPECT_EQ(log_.take(), "");
    machine_->on_arrived(immediate_of(kKey), 0);
    EXPECT_EQ(log_.take(), "verify");
    machine_->on_verdict(kKey, 0, {}, now_us_);
    EXPECT_EQ(log_.take(), "");
    machine_->on_verdict(kKey, 1, {}, now_us_);
    EXPECT_EQ(log_.take(), "admit, drop 0, drop 1");
    EXPECT_EQ(machine_->quarantined_pages(), 0u) << "they are in use, not lost";
  }
}

TEST_F(DecoderTest, WhatIsNotProvedFails) {
  reach(In::kVerifying);
  machine_->on_verdict(kKey, 0, {}, now_us_);
  machine_->on_verdict(kKey, 1, make_error(Code::kDataLoss, "page 9 differs"), now_us_);
  EXPECT_EQ(log_.take(), "drop 0, drop 1, Cancel 1, fail");
  EXPECT_EQ(log_.last_error.code, Code::kDataLoss);
  EXPECT_EQ(machine_->counters().not_proved, 1u);
  machine_->on_verdict(kKey, 0, {}, now_us_);
  EXPECT_EQ(log_.take(), "") << "a late verdict";
}

TEST_F(DecoderTest, AFailureSaysWhoWhereAndHowFar) {
  reach(In::kAccepted);
  machine_->on_arrived(immediate_of(kKey), 1);
  message(Failed{kCause});
  EXPECT_EQ(log_.last_error.code, Code::kResourceExhausted);
  EXPECT_EQ(log_.last_error.what,
            "hand-off from prefill worker prefill-0 failed in its transfer with 1 of 2 ranks "
            "complete (attempt 1, next: fail): no pages left");
}

TEST_F(DecoderTest, FailedQuarantinesUntilDrained) {
  for (const In state : {In::kAsked, In::kAccepted}) {
    reach(state);
    message(Failed{kCause});
    EXPECT_EQ(log_.take(), "drop 0, drop 1, Cancel 1, fail");
    EXPECT_EQ(machine_->quarantined_pages(), 2u);
    message(Failed{kCause});
    message(Accepted{});
    machine_->cancel(kRequest, now_us_);
    EXPECT_EQ(log_.take(), "");
    message(Drained{kCause});
    EXPECT_EQ(log_.take(), "release 1");
    EXPECT_EQ(machine_->quarantined_pages(), 0u);
    EXPECT_EQ(machine_->handoffs_count(), 0u);
  }
}

TEST_F(DecoderTest, ARefusalNeedsNoQuarantine) {
  for (const In state : {In::kAsked, In::kAccepted}) {
    reach(state);
    message(Drained{kCause});
    EXPECT_EQ(log_.take(), "Cancel 1, drop 0, drop 1, fail, release 1");
  }
}

TEST_F(DecoderTest, DrainedWithAShortCountFailsSoon) {
  for (const In state : {In::kAsked, In::kAccepted}) {
    reach(state);
    message(Drained{});
    message(Drained{});
    wait(400'000);
    EXPECT_EQ(log_.take(), "") << "completions may still be in a queue";
    wait(100'000);
    EXPECT_EQ(log_.take(), "drop 0, drop 1, fail, release 1");
    EXPECT_EQ(log_.last_error.code, Code::kDataLoss);
  }
  reach(In::kAccepted);
  message(Drained{});
  wait(400'000);
  arrive();
  prove();
  EXPECT_EQ(log_.take(), "verify, admit, drop 0, drop 1, release 1");
}

TEST_F(DecoderTest, TheDeadlineEndsWhatIsNotHere) {
  for (const In state : {In::kAsked, In::kAccepted}) {
    reach(state);
    wait(kDeadlineUs - now_us_ - 1);
    log_.take();
    now_us_ = kDeadlineUs;
    machine_->on_timer(now_us_);
    EXPECT_EQ(log_.take(), "drop 0, drop 1, Cancel 1, fail");
    EXPECT_EQ(log_.last_error.code, Code::kDeadlineExceeded);
    now_us_ = 1000;
  }
}

TEST_F(DecoderTest, InVerifyingTheProofDecides) {
  reach(In::kVerifying);
  message(Failed{kCause});
  wait(2 * kDeadlineUs);
  EXPECT_EQ(log_.take(), "");
  machine_->on_link_lost(kLink, now_us_);
  EXPECT_EQ(log_.take(), "fence");
  machine_->on_fenced(kLink, now_us_);
  EXPECT_EQ(log_.take(), "");
  prove();
  EXPECT_EQ(log_.take(), "admit, drop 0, drop 1, release 1");
}

TEST_F(DecoderTest, DrainedBeforeTheProofReleasesWithIt) {
  reach(In::kVerifying);
  message(Drained{});
  EXPECT_EQ(log_.take(), "");
  prove();
  EXPECT_EQ(log_.take(), "admit, drop 0, drop 1, release 1");
}

TEST_F(DecoderTest, AnAdmissionWaitsForDrainedAndAsksOnlyLater) {
  reach(In::kAdmitted);
  wait(100'000);
  EXPECT_EQ(log_.take(), "");
  wait(100'000);
  EXPECT_EQ(log_.take(), "Cancel 1");
  message(Drained{});
  EXPECT_EQ(log_.take(), "release 1");
}

TEST_F(DecoderTest, CancelEndsEveryState) {
  for (const In state : {In::kAsked, In::kAccepted, In::kVerifying}) {
    reach(state);
    machine_->cancel(kRequest, now_us_);
    EXPECT_EQ(log_.take(), "drop 0, drop 1, Cancel 1");
    arrive();
    prove();
    EXPECT_EQ(log_.take(), "");
    wait(200'000);
    EXPECT_EQ(log_.take(), "Cancel 1");
    message(Drained{});
    EXPECT_EQ(log_.take(), "release 1");
  }
}

TEST_F(DecoderTest, APeerThatDoesNotConfirmIsFenced) {
  reach(In::kClosing);
  wait(4'900'000);
  log_.take();
  wait(100'000);
  EXPECT_EQ(log_.take(), "fence, Cancel 1");
  EXPECT_FALSE(machine_->is_up(kLink));
  machine_->on_fenced(kLink, now_us_);
  EXPECT_EQ(log_.take(), "release 1");
  EXPECT_FALSE(machine_->next_timer_us()) << "nothing is left to wait for";
}

TEST_F(DecoderTest, WhatIsNotKnownIsAnsweredIfItIsKeptThere) {
  open({});
  message(Accepted{}, Key{3, 9});
  message(Failed{kCause}, Key{3, 10});
  message(Drained{kCause}, Key{3, 11});
  EXPECT_EQ(log_.take(), "Cancel 9, Cancel 10, Cancel 11");
  message(Drained{}, Key{3, 12});
  EXPECT_EQ(log_.take(), "");
  EXPECT_EQ(machine_->counters().unknown_handoffs, 4u);
  message(Cancel{}, Key{3, 12});  // not a decoder's to get
  EXPECT_EQ(log_.take(), "");
}

TEST_F(DecoderTest, AMessageOfAnotherLinkIsNotItsOwn) {
  reach(In::kAccepted);
  machine_->on_link_up(LinkId{78}, {"prefill-1", true}, now_us_);
  machine_->on_message({LinkId{78}, kKey, Drained{}}, now_us_);
  machine_->on_message({LinkId{78}, kKey, Failed{kCause}}, now_us_);
  EXPECT_EQ(log_.take(), "Cancel 1") << "an answer to the stranger";
  EXPECT_EQ(machine_->handoffs_count(), 1u);
}

TEST_F(DecoderTest, ALostLinkFailsWhatWaitsAndIsFenced) {
  for (const In state : {In::kAsked, In::kAccepted}) {
    reach(state);
    machine_->on_link_lost(kLink, now_us_);
    EXPECT_EQ(log_.take(), "drop 0, drop 1, Cancel 1, fail, fence");
    EXPECT_EQ(log_.last_error.code, Code::kUnavailable);
    EXPECT_EQ(start(RequestId{6}).error().code, Code::kUnavailable);
    machine_->on_process_gone(kLink, now_us_);
    EXPECT_EQ(log_.take(), "") << "packets may outlive it";
    machine_->on_fenced(kLink, now_us_);
    EXPECT_EQ(log_.take(), "release 1");
  }
}

TEST_F(DecoderTest, SilenceLosesALink) {
  reach(In::kAccepted);
  now_us_ += 1'999'999;
  machine_->on_timer(now_us_);
  EXPECT_EQ(log_.take(), "Ask 1");
  now_us_ += 1;
  EXPECT_EQ(machine_->next_timer_us(), now_us_);
  machine_->on_timer(now_us_);
  EXPECT_EQ(log_.take(), "drop 0, drop 1, Cancel 1, fail, fence");
}

TEST_F(DecoderTest, WithoutAFenceOnlyDrainedOrTheProcesssEndRelease) {
  reach(In::kAccepted, false);
  machine_->on_link_lost(kLink, now_us_);
  EXPECT_EQ(log_.take(), "drop 0, drop 1, Cancel 1, fail");
  wait(60'000'000);
  EXPECT_EQ(log_.take().find("release"), std::string::npos);
  message(Drained{});  // it was only stopped
  EXPECT_EQ(log_.take(), "release 1");

  reach(In::kAccepted, false);
  machine_->on_process_gone(kLink, now_us_);
  EXPECT_EQ(log_.take(), "drop 0, drop 1, Cancel 1, fail, release 1");
}

TEST_F(DecoderTest, SendsHeartbeatsWhileALinkIsUp) {
  open({});
  wait(1'000'000);
  EXPECT_GE(log_.heartbeats, 3);
  EXPECT_LE(log_.heartbeats, 5);
}

TEST_F(DecoderTest, PolicyRetriesALimitedNumberOfTimes) {
  open({.policy = Policy::kRetry, .attempts_max = 2});
  ASSERT_TRUE(start(kRequest, 0).ok());
  message(Drained{kCause}, Key{0, 1});
  EXPECT_NE(log_.take().find(" retry, release"), std::string::npos);
  const Key second = start(kRequest, 1).value().value();
  message(Drained{kCause}, second);
  EXPECT_NE(log_.take().find(" fail, release"), std::string::npos);
  open({.policy = Policy::kRecompute});
  ASSERT_TRUE(start().ok());
  message(Drained{kCause});
  EXPECT_NE(log_.take().find(" recompute, release"), std::string::npos);
}

TEST_F(DecoderTest, QuarantineIsBounded) {
  open({.quarantined_pages_max = 3});
  ASSERT_TRUE(start(RequestId{1}).ok());
  ASSERT_TRUE(start(RequestId{2}).ok());
  machine_->cancel(RequestId{1}, now_us_);
  log_.take();
  EXPECT_EQ(start(RequestId{3}).error().code, Code::kResourceExhausted);
  EXPECT_EQ(log_.take(), "") << "nothing has happened";
  message(Drained{});
  EXPECT_TRUE(start(RequestId{3}).ok());
}

TEST_F(DecoderTest, ASlotCountsForOneAndIsFreeAtTheCancel) {
  open({.slots = {.slots_count = 1}});
  ASSERT_TRUE(start(RequestId{1}).ok());
  EXPECT_EQ(start(RequestId{2}).error().code, Code::kResourceExhausted);
  machine_->cancel(RequestId{1}, now_us_);
  const Key next = start(RequestId{2}).value().value();
  EXPECT_EQ(next, (Key{0, 2}));
  log_.take();
  arrive();  // under the first epoch: strangers by now
  EXPECT_EQ(log_.take(), "");
  EXPECT_EQ(machine_->counters().unknown_handoffs, 2u);
  message(Drained{});
  EXPECT_EQ(log_.take(), "release 1");
  EXPECT_EQ(machine_->handoffs_count(), 1u);
}

}  // namespace
}  // namespace tandem::cluster::handoff
