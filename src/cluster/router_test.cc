// Goal: whatever becomes of the workers, a request ends once, with the tokens or the error that it
// should. Method: a router and made-up workers in virtual time, which generate tokens that follow
// from the prompt; cases by hand.
#include <gtest/gtest.h>

#include "cluster/testing/router_fixture.h"

namespace tandem::cluster {
namespace {

TEST_F(RouterTest, TokensComeInOrderUnderTheClientsId) {
  FakeWorker& decode = come("d0");
  come("p0");
  wait();
  submit(7);
  submit(3);
  EXPECT_TRUE(sink_.seen.empty());  // never from within submit()
  wait();
  expect_done(7);
  expect_done(3);
  ASSERT_EQ(decode.submitted.size(), 2u);
  EXPECT_EQ(decode.submitted[0].prefill_worker, "p0");
  EXPECT_EQ(decode.submitted[1].number, 2u);
}

TEST_F(RouterTest, WithoutWorkersItSaysWhatIsMissing) {
  EXPECT_FALSE(router_->status().ready);
  EXPECT_EQ(router_->status().reason, "no prefill worker serves; no decode worker serves");
  submit(1);
  wait(milliseconds(1));
  expect_failed(1, Code::kUnavailable, "there is no decode worker");
  come("d0");
  wait();
  EXPECT_FALSE(router_->status().ready);
  EXPECT_EQ(router_->status().reason, "no prefill worker serves");
  come("p0");
  wait();
  EXPECT_TRUE(router_->status().ready);
  EXPECT_EQ(router_->status().reason, "");
  EXPECT_EQ(router_->status().pages_total, 1000u);
  die("d0");
  wait();
  EXPECT_FALSE(router_->status().ready);
  EXPECT_THAT(router_->status().reason, HasSubstr("d0 is not connected: nobody listens at d0"));
  EXPECT_EQ(router_->status().pages_total, 0u);
}

TEST_F(RouterTest, ACancelledRequestEndsOnceWhateverTheWorkerDoes) {
  FakeWorker& decode = come("d0");
  come("p0");
  wait();
  decode.generates = false;
  for (uint64_t id = 1; id <= 3; ++id) submit(id);
  router_->cancel(RequestId{1});  // in the box still
  wait(milliseconds(5));
  router_->cancel(RequestId{2});
  router_->cancel(RequestId{2});
  router_->cancel(RequestId{99});
  wait(milliseconds(5));
  EXPECT_EQ(decode.cancelled.size(), 2u);
  EXPECT_EQ(decode.running.size(), 1u);
  router_->cancel(RequestId{3});
  die("d0");
  wait();
  for (uint64_t id = 1; id <= 3; ++id) {
    EXPECT_EQ(seen(id).ends, std::vector{FinishReason::kCancelled});
  }
  router_->cancel(RequestId{3});
  wait();
}

TEST_F(RouterTest, AWorkerThatDiesBeforeTheFirstTokenCostsNoRequest) {
  come("d0").generates = false;
  come("p0");
  wait();
  submit(1);
  wait(milliseconds(50));
  come("d1");
  wait();
  die("d0");
  wait();
  expect_done(1);
}

TEST_F(RouterTest, AWorkerThatDiesAfterTheFirstTokenEndsTheRequest) {
  come("d0");
  come("p0");
  wait();
  submit(1, 100);
  wait(milliseconds(100));
  come("d1");
  wait(milliseconds(500));
  die("d0");
  wait();
  expect_failed(1, Code::kUnavailable, "worker d0 lost the request after");
  EXPECT_THAT(seen(1).error, HasSubstr("can be sent again"));
  EXPECT_TRUE(workers_.at("d1")->submitted.empty());
  EXPECT_GT(seen(1).tokens.size(), 1u);
  expect_tokens(1, seen(1).tokens.size());
}

TEST_F(RouterTest, ARefusalIsTriedElsewhereAndNotForEver) {
  for (const char* id : {"d0", "d1", "d2"}) come(id).refuses = true;
  come("p0");
  wait();
  submit(1);
  wait();
  for (const char* id : {"d0", "d1", "d2"}) EXPECT_EQ(workers_[id]->submitted.size(), 1u) << id;
  expect_failed(1, Code::kUnavailable, "as the last of 3 attempts: its rank 1 is gone");
  workers_["d1"]->refuses = false;
  for (uint64_t id = 2; id < 8; ++id) submit(id);
  wait();
  for (uint64_t id = 2; id < 8; ++id) expect_done(id);
}

TEST_F(RouterTest, AWorkerThatStopsItsRequestsIsLost) {
  FakeWorker& stopping = come("d0");
  stopping.generates = false;
  come("p0");
  wait();
  submit(1);
  wait(milliseconds(50));
  come("d1");
  wait();
  stopping.say_event(stopping.submitted.at(0).request.id, {.finish = FinishReason::kCancelled});
  wait();
  expect_done(1);
}

TEST_F(RouterTest, OtherErrorsOfAWorkerAreTheAnswer) {
  FakeWorker& decode = come("d0");
  decode.generates = false;
  come("p0");
  wait();
  submit(1);
  wait(milliseconds(50));
  decode.say_event(
      decode.submitted.at(0).request.id,
      {.finish = FinishReason::kError, .error = make_error(Code::kInvalidArgument, "top_p is 7")});
  wait();
  expect_failed(1, Code::kInvalidArgument, "top_p is 7");
  EXPECT_EQ(decode.submitted.size(), 1u);
}

TEST_F(RouterTest, WhenAllWorkersAreGoneEveryRequestEnds) {
  for (const char* id : {"d0", "d1"}) come(id).generates = false;
  come("p0");
  wait();
  for (uint64_t id = 1; id <= 10; ++id) submit(id);
  wait(milliseconds(50));
  workers_.clear();
  wait();
  for (uint64_t id = 1; id <= 10; ++id) expect_failed(id, Code::kUnavailable, "d0");
}

TEST_F(RouterTest, TheEndOfTheRouterEndsItsRequests) {
  come("d0").generates = false;
  come("p0");
  wait();
  submit(1);
  wait(milliseconds(50));
  submit(2);  // in the box
  router_->cancel(RequestId{1});
  membership_.reset();
  channel_.reset();
  router_.reset();
  EXPECT_EQ(seen(1).ends, std::vector{FinishReason::kCancelled});
  expect_failed(2, Code::kUnavailable, "the router ends");
}

TEST_F(RouterTest, WhatIsInFlightIsBounded) {
  come("d0").generates = false;
  come("p0");
  wait();
  for (uint64_t id = 1; id <= 40; ++id) submit(id);
  const auto full = try_submit(41, {1});
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, Code::kResourceExhausted);
  router_->cancel(RequestId{1});
  wait(milliseconds(1));
  EXPECT_TRUE(try_submit(41, {1}).ok());
  for (uint64_t id = 2; id <= 41; ++id) router_->cancel(RequestId{id});
  wait(milliseconds(1));
  ASSERT_TRUE(try_submit(42, std::vector<TokenId>(999, 1)).ok());
  EXPECT_THAT(try_submit(43, {1, 2}).error().what, HasSubstr("2 more are above the limit of 1000"));
  EXPECT_TRUE(try_submit(44, {1}).ok());
}

TEST_F(RouterTest, WhatNoWorkerWouldUnderstandIsRefusedAtOnce) {
  EXPECT_EQ(try_submit(1, {}).error().code, Code::kInvalidArgument);
  EXPECT_THAT(try_submit(1, {-1}).error().what, HasSubstr("the prompt holds token -1"));
  EXPECT_EQ(router_->status().requests_running, 0u);
}

TEST_F(RouterTest, AWorkerThatFallsSilentGetsNothingNew) {
  FakeWorker& decode = come("d0");
  come("p0");
  wait();
  decode.reports = false;
  wait(milliseconds(1900));
  EXPECT_TRUE(router_->status().ready);
  wait(milliseconds(800));
  EXPECT_FALSE(router_->status().ready);
  EXPECT_THAT(router_->status().reason, HasSubstr("d0 does not report"));
  submit(1);
  wait(milliseconds(10));
  expect_failed(1, Code::kUnavailable, "d0 does not report");
  decode.reports = true;
  wait();
  submit(2);
  wait();
  expect_done(2);
}

TEST_F(RouterTest, LoadIsSpreadOverWorkersAndGroups) {
  for (const char* id : {"d0", "d1"}) come(id, 2).generates = false;
  come("p0");
  come("p1");
  wait();
  for (uint64_t id = 1; id <= 32; ++id) submit(id);
  wait();
  std::map<std::pair<std::string, uint32_t>, int> decode;
  std::map<std::string, int> prefill;
  for (const char* id : {"d0", "d1"}) {
    for (const Submit& submit : workers_[id]->submitted) {
      ++decode[{id, submit.group}];
      ++prefill[submit.prefill_worker];
    }
  }
  EXPECT_EQ(decode.size(), 4u);
  for (const auto& [place, count] : decode) EXPECT_EQ(count, 8) << place.first << place.second;
  for (const auto& [name, count] : prefill) EXPECT_EQ(count, 16) << name;
}

TEST_F(RouterTest, AWorkerThatBreaksTheProtocolIsLost) {
  const std::string too_many =
      encode(Events{{{.id = RequestId{1}, .tokens = std::vector<engine::GeneratedToken>(6)}}});
  uint64_t id = 0;
  come("p0");
  for (const std::string& said : {std::string("garbage"), encode(Subscribe{}), too_many}) {
    FakeWorker& broken = come("d0");
    broken.generates = false;
    wait();
    submit(++id);
    wait(milliseconds(50));
    come("d1");
    wait();
    broken.say(said);
    wait(milliseconds(50));
    EXPECT_TRUE(broken.running.empty());  // its connection was closed
    wait();
    expect_done(id);
    die("d0");
    die("d1");
    wait();
  }
}

TEST_F(RouterTest, ADrainingWorkerEndsWhatItHas) {
  FakeWorker& decode = come("d0");
  come("p0");
  wait();
  submit(1, 100);
  wait(milliseconds(100));
  decode.drain();
  wait(milliseconds(100));
  submit(2);
  wait(milliseconds(100));
  expect_failed(2, Code::kUnavailable, "d0 is draining");
  decode.leave();
  wait(seconds(2));
  expect_done(1, 100);
}

TEST_F(RouterTest, AWorkerThatIsListedAgainGoesOn) {
  FakeWorker& decode = come("d0");
  come("p0");
  wait();
  submit(1, 800);
  wait(milliseconds(100));
  // It loses its lease and returns, its connection lives all the time.
  world_.registry.set_reachable("d0", false);
  wait(seconds(6));
  submit(2);
  wait(milliseconds(10));
  expect_failed(2, Code::kUnavailable, "there is no decode worker");
  world_.registry.set_reachable("d0", true);
  wait();
  submit(3);
  wait(seconds(2));
  expect_done(3);
  expect_done(1, 800);
  EXPECT_EQ(decode.submitted.back().number, 2u);  // went on counting
}

}  // namespace
}  // namespace tandem::cluster
