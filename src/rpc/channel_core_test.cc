// Goal: no frame of a peer, however wrong, does more than end its own connection, and what a peer
// asks for stays within the limits.
// Method: a transport that is the test: it hands over the frames of peers that break the protocol
// one rule at a time, then random ones.

#include "rpc/channel_core.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "io/virtual_executor.h"
#include "rpc/testing/recorder.h"

namespace tandem::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = Frame::Kind;

struct FakeTransport final : Transport {
  struct Seen {
    TransportEvents* events = nullptr;
    std::vector<std::pair<ConnectionId, Frame>> sent;
    std::vector<std::pair<ConnectionId, Error>> closed;
    std::vector<ConnectionId> dialled;
    std::set<ConnectionId> gone;  ///< closed or ended: nothing may be sent there
    bool is_full = false;
    void end(ConnectionId id) {
      gone.insert(id);
      events->on_ended(id, make_error(Code::kUnavailable, "test"));
    }
  };
  explicit FakeTransport(Seen& seen) : seen(seen) {}
  void start(TransportEvents& events) override { seen.events = &events; }
  void dial(ConnectionId id, const std::string&) override { seen.dialled.push_back(id); }
  Result<void> send(ConnectionId id, Frame frame) override {
    EXPECT_FALSE(seen.gone.contains(id)) << "a frame for a connection that is no more";
    if (seen.is_full) return queue_full("peer", 1, 1);
    seen.sent.emplace_back(id, std::move(frame));
    return {};
  }
  void close(ConnectionId id, const Error& reason) override {
    seen.closed.emplace_back(id, reason);
  }
  Seen& seen;
};

Frame hello(std::string name, uint64_t generation = 1, uint32_t version = 1) {
  return {Kind::kHello, generation, version, std::move(name)};
}

class ChannelCoreTest : public testing::Test {
 protected:
  ChannelCoreTest() {
    ChannelOptions options;
    options.self = {"self", 5};
    options.limits.message_bytes_max = 100;
    options.limits.queue_bytes_max = 100;
    options.limits.calls_max = 3;
    options.limits.connections_max = 4;
    owner.channel = std::move(
        *ChannelCore::create(options, executor, owner, std::make_unique<FakeTransport>(seen)));
  }
  /// A peer that comes and sends these frames.
  ConnectionId come(const std::vector<Frame>& frames) {
    const ConnectionId id = *seen.events->on_incoming();
    for (const Frame& frame : frames) seen.events->on_frame(id, frame);
    executor.run_for(milliseconds(1));
    return id;
  }
  /// Why the connection was closed; empty when it was not.
  std::string closed_for(ConnectionId id) const {
    for (const auto& [closed, reason] : seen.closed) {
      if (closed == id) return reason.what;
    }
    return "";
  }

  io::VirtualExecutor executor;
  FakeTransport::Seen seen;
  Recorder owner{"self"};
};

TEST_F(ChannelCoreTest, ABrokenRuleEndsTheConnectionAndIsNamed) {
  const struct {
    std::vector<Frame> frames;
    std::string reason;
  } cases[] = {
      {{{Kind::kMessage, 0, 0, "x"}}, "before it said its name"},
      {{{Kind::kCall, 1, 0, "x"}}, "before it said its name"},
      {{hello("peer", 1, 2)}, "version 2 of the protocol, \"self\" speaks 1"},
      {{hello("")}, "no valid length"},
      {{hello(std::string(129, 'x'))}, "bytes at once"},
      {{hello("self")}, "name of this worker"},
      {{hello("peer"), hello("peer")}, "said its name twice"},
      {{hello("peer"), {Kind::kMessage, 0, 0, std::string(101, 'x')}}, "101 bytes at once"},
      {{hello("peer"), {static_cast<Kind>(0), 0, 0, ""}}, "no known kind"},
      {{hello("peer"), {static_cast<Kind>(99), 0, 0, ""}}, "no known kind"},
      {{hello("peer"), {Kind::kCall, 7, 0, "x"}, {Kind::kCall, 7, 0, "y"}}, "twice"},
  };
  owner.answers = false;
  uint64_t refused = 0;
  for (const auto& [frames, reason] : cases) {
    const ConnectionId id = come(frames);
    EXPECT_NE(closed_for(id).find(reason), std::string::npos)
        << reason << " is not in: " << closed_for(id);
    seen.events->on_frame(id, {Kind::kMessage, 0, 0, "after the end"});
    EXPECT_EQ(owner.channel->status().refused_peers, ++refused);
  }
  EXPECT_EQ(owner.messages.size(), 0u);
  EXPECT_EQ(owner.channel->status().connections, 0u);
}

TEST_F(ChannelCoreTest, UnknownIdsAreCountedAndHarmNobody) {
  const ConnectionId id = come({hello("peer"),
                                {Kind::kAnswer, 1234, 0, "to nothing"},
                                {Kind::kCancel, 77, 0, ""},
                                {Kind::kAnswer, 0, 999, ""}});
  EXPECT_EQ(closed_for(id), "");
  EXPECT_EQ(owner.channel->status().late_answers, 2u);
  seen.events->on_frame(ConnectionId{4711}, {Kind::kMessage, 0, 0, "of nobody"});
  seen.events->on_ended(ConnectionId{4711}, make_error(Code::kUnavailable, "of nobody"));
  owner.channel->cancel(ConnectionId{4711}, CallId{1});
  owner.channel->reply(id, CallId{1}, std::string("unasked"));
  owner.channel->close(ConnectionId{4711}, make_error(Code::kCancelled, "of nobody"));
  EXPECT_EQ(owner.lines, (std::vector<std::string>{"connected peer#1"}));
}

TEST_F(ChannelCoreTest, CallsBeyondTheLimitAreAnsweredWithAnError) {
  owner.answers = false;
  const ConnectionId id = come({hello("peer"),
                                {Kind::kCall, 1, 0, "x"},
                                {Kind::kCall, 2, 0, "x"},
                                {Kind::kCall, 3, 0, "x"},
                                {Kind::kCall, 4, 0, "x"}});
  EXPECT_EQ(owner.asked.size(), 3u);
  EXPECT_EQ(owner.channel->status().refused_calls, 1u);
  const auto refusal = std::find_if(seen.sent.begin(), seen.sent.end(), [](const auto& sent) {
    return sent.second.kind == Kind::kAnswer;
  });
  ASSERT_NE(refusal, seen.sent.end());
  EXPECT_EQ(refusal->second.id, 4u);
  EXPECT_EQ(refusal->second.code, 1 + static_cast<uint32_t>(Code::kResourceExhausted));
  // An answer makes room.
  owner.channel->reply(id, CallId{2}, std::string("done"));
  seen.events->on_frame(id, {Kind::kCall, 5, 0, "x"});
  EXPECT_EQ(owner.asked.size(), 4u);
}

TEST_F(ChannelCoreTest, AnAnswerWithoutRoomEndsTheConnection) {
  const ConnectionId id = come({hello("peer")});
  seen.is_full = true;
  seen.events->on_frame(id, {Kind::kCall, 1, 0, "x"});
  executor.run_for(milliseconds(1));
  EXPECT_EQ(owner.count("closed peer"), 1);
  EXPECT_NE(closed_for(id).find("does not take"), std::string::npos);
}

TEST_F(ChannelCoreTest, AnAnswerThatIsTooLongBecomesAnError) {
  owner.answers = false;
  const ConnectionId id = come({hello("peer"), {Kind::kCall, 1, 0, "x"}});
  owner.channel->reply(id, CallId{1}, std::string(101, 'x'));
  EXPECT_EQ(seen.sent.back().second.code, 1 + static_cast<uint32_t>(Code::kInternal));
  EXPECT_LE(seen.sent.back().second.payload.size(), 100u);
}

TEST_F(ChannelCoreTest, WhoSaysNothingIsGivenUp) {
  const ConnectionId silent = come({});
  executor.run_for(milliseconds(4'900));
  EXPECT_EQ(closed_for(silent), "");
  executor.run_for(milliseconds(200));
  EXPECT_NE(closed_for(silent).find("did not say its name"), std::string::npos);
  // The same for one that was dialled, which is then dialled again.
  ASSERT_TRUE(owner.channel->connect("peer", "somewhere").ok());
  executor.run_for(seconds(6));
  EXPECT_EQ(owner.count("failed peer"), 1);
  EXPECT_GE(seen.dialled.size(), 2u);
}

TEST_F(ChannelCoreTest, WhoIsGoneAtOnceIsNotGreeted) {
  seen.end(*seen.events->on_incoming());
  executor.run_for(seconds(10));
  EXPECT_EQ(seen.sent.size(), 0u);
  EXPECT_EQ(owner.channel->status().connections, 0u);
}

TEST_F(ChannelCoreTest, ThereIsRoomForSoManyPeersOnly) {
  for (int i = 0; i < 4; ++i) come({hello("peer" + std::to_string(i))});
  EXPECT_FALSE(seen.events->on_incoming().has_value());
  owner.channel->close(owner.connections.at("peer0"), make_error(Code::kCancelled, "room"));
  executor.run_for(milliseconds(1));
  EXPECT_TRUE(seen.events->on_incoming().has_value());
}

TEST_F(ChannelCoreTest, RandomFramesNeverHarmMoreThanTheirConnection) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<ConnectionId> peers;
    for (int step = 0; step < 200; ++step) {
      if (peers.empty() || random() % 20 == 0) {
        if (const auto id = seen.events->on_incoming()) peers.push_back(*id);
      }
      if (peers.empty()) {
        executor.run_for(seconds(10));
        continue;
      }
      const ConnectionId id = peers[random() % peers.size()];
      Frame frame{static_cast<Kind>(random() % 7), random() % 4,
                  static_cast<uint32_t>(random() % 13), std::string(random() % 103, 'x')};
      if (random() % 3 == 0) frame = hello("peer" + std::to_string(random() % 3), random() % 3);
      seen.events->on_frame(id, frame);
      if (random() % 10 == 0 && !seen.gone.contains(id)) seen.end(id);
      if (owner.is_connected("peer0")) {
        (void)owner.call("peer0", "x", milliseconds(random() % 30));
      }
      if (random() % 5 == 0) executor.run_for(milliseconds(random() % 10));
      ASSERT_LE(owner.channel->status().connections, 4u);
    }
  }
  // Nobody is left when all have gone, and nothing waits for ever.
  for (const auto& [name, id] : std::map(owner.connections)) {
    owner.channel->close(id, make_error(Code::kCancelled, "the end"));
  }
  executor.run_for(seconds(10));
  EXPECT_EQ(owner.channel->status().connections, 0u);
  EXPECT_EQ(owner.connections.size(), 0u);
  EXPECT_GT(owner.lines.size(), 1'000u);
}

TEST(ChannelOptions, OutOfRangeIsAnErrorThatNamesTheField) {
  const auto refused = [](auto change) {
    io::VirtualExecutor executor;
    FakeTransport::Seen seen;
    Recorder owner("self");
    ChannelOptions options;
    options.self.name = "self";
    change(options);
    return !ChannelCore::create(options, executor, owner, std::make_unique<FakeTransport>(seen))
                .ok();
  };
  EXPECT_FALSE(refused([](ChannelOptions&) {}));
  EXPECT_TRUE(refused([](ChannelOptions& o) { o.self.name = ""; }));
  EXPECT_TRUE(refused([](ChannelOptions& o) { o.limits.calls_max = 0; }));
  EXPECT_TRUE(refused([](ChannelOptions& o) { o.limits.queue_bytes_max = 1; }));
  EXPECT_TRUE(refused([](ChannelOptions& o) { o.times.hello_max = milliseconds(0); }));
}

}  // namespace
}  // namespace tandem::rpc
