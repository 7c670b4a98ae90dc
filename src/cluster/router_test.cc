// Goal: whatever becomes of the workers, a request ends once, and its tokens are those that its
// prompt asks for, in order. Method: a router and made-up workers in virtual time, which generate
// tokens that follow from the prompt; cases by hand, then random histories.
#include "cluster/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>

#include "io/virtual_executor.h"
#include "rpc/virtual_channel.h"
#include "rpc/virtual_membership.h"

namespace tandem::cluster {
namespace {

using engine::FinishReason;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

uint64_t sum(std::span<const std::byte> bytes, uint64_t seed) {
  for (const std::byte byte : bytes) seed = seed * 31 + static_cast<uint64_t>(byte) + 1;
  return seed;
}

struct World {
  io::VirtualExecutor executor;
  rpc::VirtualNetwork network{executor, 1};
  rpc::VirtualRegistry registry{executor, 1, seconds(5)};
};

TokenId token_of(TokenId prompt, size_t index) {
  return (prompt * 7 + static_cast<TokenId>(index)) % 1000;
}

/// Reports, and generates a token per request and 10 ms.
class Worker final : public rpc::ChannelEvents, public rpc::MembershipEvents {
 public:
  Worker(World& world, const std::string& id, uint64_t generation, size_t groups = 1)
      : self_{.id = id,
              .role = id[0] == 'd' ? rpc::Role::kDecode : rpc::Role::kPrefill,
              .generation = generation,
              .address = id},
        groups_(groups),
        timers_(world.executor) {
    rpc::ChannelOptions options;
    options.self = {id, generation};
    channel_ = std::move(*world.network.open(options, id, *this));
    membership_ = world.registry.open(id, *this);
    EXPECT_TRUE(membership_->announce(self_).ok());
    report();
    generate();
  }

  void drain() {
    self_.draining = true;
    EXPECT_TRUE(membership_->announce(self_).ok());
  }
  void leave() { membership_->withdraw(); }
  void say(std::string bytes) { EXPECT_TRUE(channel_->send(*router_, std::move(bytes)).ok()); }
  void say_event(RequestId id, engine::Event event) {
    event.id = id;
    say(encode(Events{{event}}));
  }

  bool generates = true, reports = true, refuses = false;
  std::vector<Submit> submitted;
  std::vector<RequestId> cancelled;
  std::map<RequestId, std::pair<Submit, size_t>> running;  ///< and tokens generated

  void on_connected(rpc::ConnectionId connection, const rpc::Peer&) override { begin(connection); }
  void on_message(rpc::ConnectionId connection, std::string bytes) override {
    const auto message = decode_message(bytes, {});
    ASSERT_TRUE(message.ok());
    ASSERT_EQ(connection, router_);
    if (std::holds_alternative<Subscribe>(*message)) subscribed_ = true;
    if (const auto* cancel = std::get_if<CancelRequest>(&*message)) {
      cancelled.push_back(cancel->request);
      if (running.erase(cancel->request) > 0) {
        say_event(cancel->request, {.finish = FinishReason::kCancelled});
      }
    }
    if (const auto* submit = std::get_if<Submit>(&*message)) take(*submit);
  }
  void on_closed(rpc::ConnectionId connection, const rpc::Peer&, const Error&) override {
    // The next connection may have come before the end of this one.
    if (router_ == connection) begin(std::nullopt);
  }
  void on_call(rpc::ConnectionId, rpc::CallId, std::string) override {}
  void on_call_cancelled(rpc::ConnectionId, rpc::CallId) override {}
  void on_connect_failed(const std::string&, const Error&) override {}
  void on_joined(const rpc::Member&) override {}
  void on_changed(const rpc::Member&) override {}
  void on_left(const rpc::Member&) override {}

 private:
  void begin(std::optional<rpc::ConnectionId> router) {
    router_ = router;
    subscribed_ = false;
    running.clear();
    number_ = 0;
  }
  void take(const Submit& submit) {
    submitted.push_back(submit);
    EXPECT_GT(submit.number, number_);
    EXPECT_LT(submit.group, groups_);
    number_ = submit.number;
    if (refuses) {
      return say_event(submit.request.id,
                       {.finish = FinishReason::kError,
                        .error = make_error(Code::kUnavailable, "its rank 1 is gone")});
    }
    EXPECT_TRUE(running.emplace(submit.request.id, std::pair(submit, size_t{0})).second);
  }
  void report() {
    timers_.after(milliseconds(100), [this] { report(); });
    if (!subscribed_ || !reports) return;
    Report report{.requests_included = number_, .page_tokens = 16};
    report.groups.resize(groups_);
    for (engine::EngineStatus& group : report.groups) {
      group.ready = true;
      group.pages_total = 1000;
    }
    for (const auto& [id, request] : running) report.groups[request.first.group].pages_used += 10;
    say(encode(report));
  }
  void generate() {
    timers_.after(milliseconds(10), [this] { generate(); });
    if (!generates || !router_) return;
    Events events;
    for (auto next = running.begin(); next != running.end();) {
      auto& [submit, count] = next->second;
      engine::Event& event = events.events.emplace_back();
      event.id = next->first;
      event.tokens = {{.token = token_of(submit.request.prompt[0], count++)}};
      const bool ends = count == submit.request.tokens_max;
      if (ends) event.finish = FinishReason::kLength;
      next = ends ? running.erase(next) : std::next(next);
    }
    if (!events.events.empty()) say(encode(events));
  }

  rpc::Member self_;
  const size_t groups_;
  uint64_t number_ = 0;
  bool subscribed_ = false;
  std::optional<rpc::ConnectionId> router_;
  io::Timers timers_;
  std::unique_ptr<rpc::Membership> membership_;
  std::unique_ptr<rpc::Channel> channel_;
};

/// What a client has of its request.
struct Seen {
  std::vector<TokenId> tokens;
  std::vector<FinishReason> ends;
  std::string error;
  Code code{};
};

struct Sink final : engine::EventSink {
  void on_events(std::span<engine::Event> events) override {
    for (const engine::Event& event : events) {
      Seen& request = seen[event.id];
      EXPECT_TRUE(request.ends.empty()) << "an event after the last one";
      for (const auto& token : event.tokens) request.tokens.push_back(token.token);
      if (event.finish) request.ends.push_back(*event.finish);
      if (event.error) request.error = event.error->what, request.code = event.error->code;
    }
  }
  std::map<RequestId, Seen> seen;
};

class RouterTest : public testing::Test {
 protected:
  explicit RouterTest(Router::Options options = {.board = {.prefix_keys = {&sum, 1, 16}},
                                                 .requests_max = 40,
                                                 .tokens_max = 1000})
      : router_(std::make_unique<Router>(options, world_.executor)) {
    rpc::ChannelOptions channel;
    channel.self = {"router", 1};
    channel_ = std::move(*world_.network.open(channel, "router", *router_));
    router_->start(*channel_);
    membership_ = world_.registry.open("router", *router_);
  }
  ~RouterTest() override {
    membership_.reset();
    channel_.reset();
  }

  Worker& come(const std::string& id, size_t groups = 1) {
    workers_[id].reset();
    workers_[id] = std::make_unique<Worker>(world_, id, ++generations_, groups);
    return *workers_[id];
  }
  void die(const std::string& id) { workers_.erase(id); }
  void wait(std::chrono::nanoseconds time = seconds(1)) { world_.executor.run_for(time); }

  Result<void> try_submit(uint64_t id, std::vector<TokenId> prompt, uint32_t tokens_max = 5) {
    engine::Request request;
    request.id = RequestId{id};
    request.prompt = std::move(prompt);
    request.tokens_max = tokens_max;
    return router_->submit(std::move(request), sink_);
  }
  void submit(uint64_t id, uint32_t tokens_max = 5) {
    const auto submitted = try_submit(id, {static_cast<TokenId>(id), 1, 2}, tokens_max);
    ASSERT_TRUE(submitted.ok()) << submitted.error().what;
  }
  const Seen& seen(uint64_t id) { return sink_.seen[RequestId{id}]; }
  void expect_tokens(uint64_t id, size_t count) {
    std::vector<TokenId> tokens;
    for (size_t i = 0; i < count; ++i) tokens.push_back(token_of(static_cast<TokenId>(id), i));
    EXPECT_EQ(seen(id).tokens, tokens);
  }
  void expect_done(uint64_t id, size_t count = 5) {
    EXPECT_EQ(seen(id).ends, std::vector{FinishReason::kLength}) << seen(id).error;
    expect_tokens(id, count);
  }
  void expect_failed(uint64_t id, Code code, const std::string& text) {
    EXPECT_EQ(seen(id).ends, std::vector{FinishReason::kError});
    EXPECT_EQ(seen(id).code, code);
    EXPECT_THAT(seen(id).error, HasSubstr(text));
  }

  World world_;
  std::map<std::string, std::unique_ptr<Worker>> workers_;
  uint64_t generations_ = 0;
  Sink sink_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<rpc::Membership> membership_;
  std::unique_ptr<rpc::Channel> channel_;
};

TEST_F(RouterTest, TokensComeInOrderUnderTheClientsId) {
  Worker& decode = come("d0");
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
  Worker& decode = come("d0");
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
  Worker& stopping = come("d0");
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
  Worker& decode = come("d0");
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
  Worker& decode = come("d0");
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
    Worker& broken = come("d0");
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
  Worker& decode = come("d0");
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
  Worker& decode = come("d0");
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

class RouterHistory : public RouterTest {
 protected:
  void step(std::mt19937_64& random) {
    const std::string id = std::vector<std::string>{"d0", "d1", "p0", "p1"}[random() % 4];
    const auto worker = workers_.find(id);
    const bool lives = worker != workers_.end();
    switch (random() % 12) {
      case 0:
        return die(id);
      case 1:
        if (!lives) come(id, 1 + random() % 2);
        return;
      case 2:
        return world_.network.drop_connections(id, "router");
      case 3:
        return world_.network.partition(id, "router");
      case 4:
        return world_.network.heal(id, "router");
      case 5:
        if (lives) worker->second->refuses = random() % 3 == 0;
        return;
      case 6:
        if (lives) worker->second->generates = random() % 3 != 0;
        return;
      case 7:
        if (lives) worker->second->reports = random() % 3 != 0;
        return;
      case 8:
        return world_.registry.set_reachable(id, random() % 2 == 0);
      default:
        if (submitted_ > 0 && random() % 4 == 0) {
          return router_->cancel(RequestId{1 + random() % submitted_});
        }
        if (try_submit(submitted_ + 1, {static_cast<TokenId>(submitted_ + 1), 1},
                       1 + static_cast<uint32_t>(random() % 20))
                .ok()) {
          asked_[++submitted_] = world_.executor.now();
        }
    }
  }

  uint64_t submitted_ = 0;
  std::map<uint64_t, io::Time> asked_;
};

TEST_F(RouterHistory, EveryRequestEndsOnceWithItsTokensInOrder) {
  // Each round goes on from whatever state the one before has left.
  uint64_t done = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "round of seed " << seed);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 100; ++i) {
      step(random);
      wait(milliseconds(random() % 100));
    }
    for (const char* id : {"d0", "d1", "p0", "p1"}) {
      world_.network.heal(id, "router");
      world_.registry.set_reachable(id, true);
    }
    for (const auto& [id, worker] : workers_) worker->generates = worker->reports = true;
    wait(seconds(30));
    ASSERT_EQ(sink_.seen.size(), submitted_);
    for (auto& [id, seen] : sink_.seen) {
      ASSERT_EQ(seen.ends.size(), 1u) << id.value;
      for (size_t i = 0; i < seen.tokens.size(); ++i) {
        ASSERT_EQ(seen.tokens[i], token_of(static_cast<TokenId>(id.value), i)) << id.value;
      }
      ASSERT_LE(seen.tokens.size(), 20u);
      done += seen.ends[0] == FinishReason::kLength;
    }
    sink_.seen.clear();
    submitted_ = 0;
    const auto free = try_submit(1'000'000, {1});  // nothing was leaked of what is bounded
    ASSERT_TRUE(free.ok());
    wait();
    sink_.seen.clear();
  }
  EXPECT_GT(done, 200u);  // of them many end well
}

}  // namespace
}  // namespace tandem::cluster
