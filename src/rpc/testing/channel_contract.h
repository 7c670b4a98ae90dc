#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "rpc/testing/recorder.h"

namespace tandem::rpc {

/// The promises of channel.h that hold for every channel, as a typed test suite. A Network makes
/// processes that can reach each other:
///   std::string open(Recorder&, ChannelOptions)     its channel is set; returns its address
///   bool run_until(std::function<bool()>)           false when it does not come about
///   void run_for(milliseconds)                      at least so long
template <typename Network>
class ChannelContract : public testing::Test {
 protected:
  static ChannelOptions options_of(const Recorder& process, uint64_t generation = 1) {
    ChannelOptions options;
    options.self = {process.name, generation};
    options.limits.message_bytes_max = 100'000;
    options.limits.queue_messages_max = 64;
    options.limits.queue_bytes_max = 400'000;
    options.limits.calls_max = 4;
    options.times.hello_max = std::chrono::milliseconds(2000);
    options.times.redial_first = std::chrono::milliseconds(20);
    options.times.redial_max = std::chrono::milliseconds(200);
    options.times.silence_probe = std::chrono::milliseconds(300);
    options.times.silence_max = std::chrono::milliseconds(700);
    return options;
  }

  /// `a` dials `b`.
  void connect() {
    network.open(a, options_of(a));
    const std::string address = network.open(b, options_of(b, 7));
    ASSERT_TRUE(a.channel->connect("b", address).ok());
    ASSERT_TRUE(until([&] { return a.is_connected("b") && b.is_connected("a"); }));
  }
  bool until(std::function<bool()> done) { return network.run_until(std::move(done)); }

  Network network;
  Recorder a{"a"};
  Recorder b{"b"};
};

TYPED_TEST_SUITE_P(ChannelContract);

TYPED_TEST_P(ChannelContract, BothSidesLearnWhoIsThere) {
  this->connect();
  EXPECT_EQ(this->a.lines, (std::vector<std::string>{"connected b#7"}));
  EXPECT_EQ(this->b.lines, (std::vector<std::string>{"connected a#1"}));
}

TYPED_TEST_P(ChannelContract, MessagesArriveInOrderBothWays) {
  this->connect();
  auto &a = this->a, &b = this->b;
  std::vector<std::string> expected_a, expected_b;
  const std::string bytes("\0\xff\n", 3);
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 40; ++i) {
      const std::string number = std::to_string(round * 40 + i) + bytes;
      ASSERT_TRUE(a.send("b", "a" + number).ok());
      ASSERT_TRUE(b.send("a", "b" + number).ok());
      expected_b.push_back("a" + number);
      expected_a.push_back("b" + number);
    }
    ASSERT_TRUE(this->until([&] {
      return a.messages.size() == expected_a.size() && b.messages.size() == expected_b.size();
    }));
  }
  EXPECT_EQ(a.messages, expected_a);
  EXPECT_EQ(b.messages, expected_b);
}

TYPED_TEST_P(ChannelContract, EmptyAndLongestMessagesPassLongerOnesDoNot) {
  this->connect();
  auto &a = this->a, &b = this->b;
  const std::string longest(100'000, 'x');
  ASSERT_TRUE(a.send("b", "").ok());
  ASSERT_TRUE(a.send("b", longest).ok());
  const auto refused = a.send("b", longest + "x");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_NE(refused.error().what.find("100001"), std::string::npos);
  ASSERT_TRUE(this->until([&] { return b.messages.size() == 2; }));
  EXPECT_EQ(b.messages, (std::vector<std::string>{"", longest}));
  EXPECT_TRUE(a.is_connected("b"));
}

TYPED_TEST_P(ChannelContract, CallsAreAnsweredOnBothSides) {
  this->connect();
  auto &a = this->a, &b = this->b;
  ASSERT_TRUE(a.call("b", "one?", std::chrono::seconds(60)).ok());
  ASSERT_TRUE(b.call("a", "two?", std::chrono::seconds(60)).ok());
  ASSERT_TRUE(this->until(
      [&] { return a.count("answer: re: one?") == 1 && b.count("answer: re: two?") == 1; }));
}

TYPED_TEST_P(ChannelContract, AnErrorIsAnAnswer) {
  this->connect();
  auto &a = this->a, &b = this->b;
  b.answers = false;
  ASSERT_TRUE(a.call("b", "why?", std::chrono::seconds(60)).ok());
  ASSERT_TRUE(this->until([&] { return b.asked.size() == 1; }));
  b.channel->reply(b.asked[0].first, b.asked[0].second, make_error(Code::kNotFound, "not here"));
  ASSERT_TRUE(this->until([&] { return a.count("no answer: not_found") == 1; }));
  EXPECT_EQ(a.reasons.back().what, "not here");
}

TYPED_TEST_P(ChannelContract, ACallEndsAtItsDeadlineAndThePeerIsTold) {
  this->connect();
  auto &a = this->a, &b = this->b;
  b.answers = false;
  ASSERT_TRUE(a.call("b", "slow?", std::chrono::milliseconds(30)).ok());
  ASSERT_TRUE(this->until([&] { return b.count("cancelled a") == 1; }));
  EXPECT_EQ(a.count("no answer: deadline_exceeded"), 1);
  // Too late; nobody hears it.
  b.channel->reply(b.asked[0].first, b.asked[0].second, std::string("late"));
  ASSERT_TRUE(a.call("b", "last?", std::chrono::seconds(60)).ok());
  ASSERT_TRUE(this->until([&] { return b.asked.size() == 2; }));
  EXPECT_EQ(a.count("answer: late"), 0);
}

TYPED_TEST_P(ChannelContract, ACancelledCallIsNeverAnswered) {
  this->connect();
  auto &a = this->a, &b = this->b;
  b.answers = false;
  const auto call = a.call("b", "wanted?", std::chrono::seconds(60));
  ASSERT_TRUE(call.ok());
  ASSERT_TRUE(this->until([&] { return b.asked.size() == 1; }));
  a.channel->cancel(a.connections.at("b"), *call);
  // The answer crosses the cancellation.
  b.channel->reply(b.asked[0].first, b.asked[0].second, std::string("crossing"));
  ASSERT_TRUE(this->until([&] { return a.channel->status().late_answers == 1; }));
  EXPECT_EQ(a.lines.size(), 1u);  // "connected"
}

TYPED_TEST_P(ChannelContract, UnansweredCallsAreLimited) {
  this->connect();
  auto &a = this->a, &b = this->b;
  b.answers = false;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(a.call("b", "?", std::chrono::seconds(60)).ok());
  const auto fifth = a.call("b", "?", std::chrono::seconds(60));
  ASSERT_FALSE(fifth.ok());
  EXPECT_EQ(fifth.error().code, Code::kResourceExhausted);
  ASSERT_TRUE(this->until([&] { return b.asked.size() == 4; }));
}

TYPED_TEST_P(ChannelContract, AFullQueueIsAnErrorAndTheRestArrives) {
  this->connect();
  auto &a = this->a, &b = this->b;
  // Not one message is taken before this thread runs the channels again.
  size_t taken = 0;
  Result<void> sent;
  while (taken < 1'000'000 && (sent = a.send("b", std::string(50'000, 'x'))).ok()) ++taken;
  ASSERT_FALSE(sent.ok());
  EXPECT_EQ(sent.error().code, Code::kResourceExhausted);
  EXPECT_NE(sent.error().what.find("\"b\""), std::string::npos);
  EXPECT_GE(taken, 400'000u / 50'064);
  ASSERT_TRUE(this->until([&] { return b.messages.size() == taken; }));
  ASSERT_TRUE(a.send("b", "more").ok());
  ASSERT_TRUE(this->until([&] { return b.messages.size() == taken + 1; }));
}

TYPED_TEST_P(ChannelContract, ClosingIsHeardOnceOnBothSidesAndRedialled) {
  this->connect();
  auto &a = this->a, &b = this->b;
  const ConnectionId old = a.connections.at("b");
  a.channel->close(old, make_error(Code::kCancelled, "enough"));
  EXPECT_EQ(a.count("closed b"), 0);  // not from within the call
  const auto sent = a.channel->send(old, "too late");
  ASSERT_FALSE(sent.ok());
  EXPECT_EQ(sent.error().code, Code::kUnavailable);
  ASSERT_TRUE(
      this->until([&] { return a.count("connected b#7") == 2 && b.count("connected a#1") == 2; }));
  EXPECT_EQ(a.count("closed b"), 1);
  EXPECT_EQ(b.count("closed a"), 1);
  EXPECT_NE(a.connections.at("b"), old);
  ASSERT_TRUE(b.send("a", "again").ok());
  ASSERT_TRUE(this->until([&] { return a.messages.size() == 1; }));
}

TYPED_TEST_P(ChannelContract, TheOtherSideMayCloseAndCallsEndWithIt) {
  this->connect();
  auto &a = this->a, &b = this->b;
  b.answers = false;
  ASSERT_TRUE(a.call("b", "?", std::chrono::seconds(60)).ok());
  ASSERT_TRUE(this->until([&] { return b.asked.size() == 1; }));
  b.channel->close(b.connections.at("a"), make_error(Code::kFailedPrecondition, "no layout"));
  ASSERT_TRUE(this->until([&] { return a.count("closed b") == 1; }));
  EXPECT_EQ(a.count("no answer: unavailable"), 1);
  EXPECT_NE(a.reasons.back().what.find("no layout"), std::string::npos) << a.reasons.back().what;
}

TYPED_TEST_P(ChannelContract, APeerThatDiesIsNoticedAndMayReturn) {
  this->connect();
  auto &a = this->a, &b = this->b;
  b.channel.reset();
  ASSERT_TRUE(this->until([&] { return a.count("closed b") == 1; }));
  ASSERT_TRUE(this->until([&] { return a.count("failed b") >= 2; }));
  a.channel->disconnect("b");
  Recorder b2("b");
  const std::string address = this->network.open(b2, this->options_of(b2, 8));
  ASSERT_TRUE(a.channel->connect("b", address).ok());
  ASSERT_TRUE(this->until([&] { return a.count("connected b#8") == 1; }));
}

TYPED_TEST_P(ChannelContract, TheWrongPeerAtAnAddressIsRefused) {
  this->network.open(this->a, this->options_of(this->a));
  const std::string address = this->network.open(this->b, this->options_of(this->b));
  ASSERT_TRUE(this->a.channel->connect("c", address).ok());
  ASSERT_TRUE(this->until([&] { return this->a.count("failed c") == 1; }));
  EXPECT_NE(this->a.failures[0].what.find("\"c\" was asked for"), std::string::npos);
  EXPECT_FALSE(this->a.is_connected("b"));
}

TYPED_TEST_P(ChannelContract, ANewerLifeReplacesTheOlderWhichCannotComeBack) {
  auto& b = this->b;
  const std::string address = this->network.open(b, this->options_of(b));
  Recorder old("a"), young("a");
  this->network.open(old, this->options_of(old, 1));
  this->network.open(young, this->options_of(young, 2));
  ASSERT_TRUE(old.channel->connect("b", address).ok());
  ASSERT_TRUE(this->until([&] { return b.count("connected a#1") == 1; }));
  ASSERT_TRUE(young.channel->connect("b", address).ok());
  ASSERT_TRUE(this->until([&] { return b.count("closed a") == 1 && young.is_connected("b"); }));
  // The old one keeps coming and is told why it may not stay.
  ASSERT_TRUE(this->until([&] { return b.channel->status().refused_peers >= 1; }));
  EXPECT_EQ(b.count("connected a#1"), 1);
  EXPECT_TRUE(young.is_connected("b"));
}

TYPED_TEST_P(ChannelContract, DisconnectEndsTheConnectionForGood) {
  this->connect();
  this->a.channel->disconnect("b");
  this->a.channel->disconnect("nobody");
  ASSERT_TRUE(this->until(
      [&] { return this->a.count("closed b") == 1 && this->b.count("closed a") == 1; }));
  this->network.run_for(std::chrono::milliseconds(300));
  EXPECT_EQ(this->a.count("connected b#7"), 1);
}

TYPED_TEST_P(ChannelContract, ImpossibleOptionsAreRefused) {
  this->network.open(this->a, this->options_of(this->a));
  EXPECT_FALSE(this->a.channel->connect("a", "somewhere").ok());
  ASSERT_TRUE(this->a.channel->connect("b", "first").ok());
  const auto twice = this->a.channel->connect("b", "second");
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.error().what.find("first"), std::string::npos);
}

REGISTER_TYPED_TEST_SUITE_P(ChannelContract, BothSidesLearnWhoIsThere,
                            MessagesArriveInOrderBothWays,
                            EmptyAndLongestMessagesPassLongerOnesDoNot, CallsAreAnsweredOnBothSides,
                            AnErrorIsAnAnswer, ACallEndsAtItsDeadlineAndThePeerIsTold,
                            ACancelledCallIsNeverAnswered, UnansweredCallsAreLimited,
                            AFullQueueIsAnErrorAndTheRestArrives,
                            ClosingIsHeardOnceOnBothSidesAndRedialled,
                            TheOtherSideMayCloseAndCallsEndWithIt,
                            APeerThatDiesIsNoticedAndMayReturn, TheWrongPeerAtAnAddressIsRefused,
                            ANewerLifeReplacesTheOlderWhichCannotComeBack,
                            DisconnectEndsTheConnectionForGood, ImpossibleOptionsAreRefused);

}  // namespace tandem::rpc
