// Goal: a request goes to the engine with the least to do that is ready, or to the next one when it
// is lost at this moment; a status is that of all.
// Method: fakes that report what the test sets and count what they get.
#include "engine/engine_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace tandem::engine {
namespace {

class FakeEngine final : public EngineClient {
 public:
  Result<void> submit(Request, EventSink&) override {
    if (refusal) return *refusal;
    ++submitted;
    ++state.requests_waiting;
    return {};
  }
  void cancel(RequestId id) override { cancelled.push_back(id); }
  EngineStatus status() const override { return state; }

  EngineStatus state{.ready = true, .pages_total = 10};
  int submitted = 0;
  std::optional<Error> refusal;
  std::vector<RequestId> cancelled;
};

class NoSink final : public EventSink {
 public:
  void on_events(std::span<Event>) override {}
};

class EngineRouterTest : public testing::Test {
 protected:
  void submit(int count) {
    for (int i = 0; i < count; ++i) router_.submit({}, sink_).value();
  }
  FakeEngine a_, b_, c_;
  NoSink sink_;
  EngineRouter router_{{&a_, &b_, &c_}};
};

TEST_F(EngineRouterTest, EqualEnginesGetEqualShares) {
  submit(9);
  EXPECT_EQ(a_.submitted, 3);
  EXPECT_EQ(b_.submitted, 3);
  EXPECT_EQ(c_.submitted, 3);
}

TEST_F(EngineRouterTest, TheFreestEngineIsFilledFirst) {
  a_.state.requests_running = 5;
  b_.state.requests_waiting = 2;
  submit(4);
  EXPECT_EQ(a_.submitted, 0);
  EXPECT_GE(c_.submitted, 3);
}

TEST_F(EngineRouterTest, AnEngineThatIsNotReadyIsTheLastChoice) {
  c_.state.ready = false;
  a_.state.requests_running = 100;
  submit(4);
  EXPECT_EQ(c_.submitted, 0);
  a_.state.ready = b_.state.ready = false;
  submit(1);  // somebody says why
  EXPECT_EQ(a_.submitted + b_.submitted + c_.submitted, 5);
}

TEST_F(EngineRouterTest, AnEngineThatIsLostBeforeItSaysSoCostsNoRequest) {
  a_.refusal = make_error(Code::kUnavailable, "rank 0 is gone");
  submit(6);
  EXPECT_EQ(b_.submitted, 3);
  EXPECT_EQ(c_.submitted, 3);
  b_.refusal = c_.refusal = make_error(Code::kUnavailable, "rank 1 is gone");
  b_.state.ready = c_.state.ready = false;
  const auto refused = router_.submit({}, sink_);
  EXPECT_EQ(refused.error().what, "rank 0 is gone");
}

TEST_F(EngineRouterTest, AnEngineThatIsFullSaysSo) {
  a_.refusal = make_error(Code::kResourceExhausted, "too many wait");
  b_.state.requests_waiting = c_.state.requests_waiting = 1;
  EXPECT_EQ(router_.submit({}, sink_).error().code, Code::kResourceExhausted);
}

TEST_F(EngineRouterTest, CancelReachesWhoeverHasIt) {
  router_.cancel(RequestId{7});
  for (const FakeEngine* engine : {&a_, &b_, &c_}) {
    EXPECT_THAT(engine->cancelled, testing::ElementsAre(RequestId{7}));
  }
}

TEST_F(EngineRouterTest, StatusIsTheSumAndTheFirstReason) {
  b_.state.generated_tokens = 5;
  c_.state.generated_tokens = 6;
  EXPECT_TRUE(router_.status().ready);
  EXPECT_EQ(router_.status().generated_tokens, 11u);
  EXPECT_EQ(router_.status().pages_total, 30u);
  b_.state.ready = false;
  b_.state.reason = "rank 1 is gone";
  c_.state.reason = "it goes on without others";
  c_.state.lost_ranks = {"rank 1", "rank 7"};
  EXPECT_TRUE(router_.status().ready);  // the others answer
  EXPECT_EQ(router_.status().reason, "rank 1 is gone");
  EXPECT_EQ(router_.status().lost_ranks, c_.state.lost_ranks);
  a_.state.ready = c_.state.ready = false;
  EXPECT_FALSE(router_.status().ready);
  a_.state.ready = b_.state.ready = c_.state.ready = true;
  b_.state.reason = "";
  EXPECT_TRUE(router_.status().ready);
  EXPECT_EQ(router_.status().reason, "it goes on without others");
}

}  // namespace
}  // namespace tandem::engine
