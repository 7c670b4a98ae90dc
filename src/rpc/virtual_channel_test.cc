// Goal: the virtual channel keeps the contract of every channel, and its faults and times depend on
// the seed alone.
// Method: the shared contract suite; then faults at chosen moments of virtual time, and one random
// run that must repeat line by line.

#include "rpc/virtual_channel.h"

#include <gtest/gtest.h>

#include "io/virtual_executor.h"
#include "rpc/testing/channel_contract.h"

namespace tandem::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct VirtualTestNetwork {
  std::string open(Recorder& process, const ChannelOptions& options) {
    const std::string address = "host-" + std::to_string(++opened);
    auto channel = network.open(options, address, process);
    EXPECT_TRUE(channel.ok());
    process.channel = std::move(*channel);
    return address;
  }
  bool run_until(const std::function<bool()>& done) {
    const io::Time end = executor.now() + seconds(100);
    while (!done()) {
      if (!executor.step(end)) return false;
    }
    return true;
  }
  void run_for(milliseconds time) { executor.run_for(time); }

  int opened = 0;
  io::VirtualExecutor executor;
  VirtualNetwork network{executor, 1};
};

INSTANTIATE_TYPED_TEST_SUITE_P(Virtual, ChannelContract, VirtualTestNetwork);

class VirtualFaults : public ChannelContract<VirtualTestNetwork> {
 protected:
  VirtualNetwork& net() { return network.network; }
};

TEST_F(VirtualFaults, APartitionIsNoticedInBoundedTimeByBothSides) {
  connect();
  net().partition("a", "b");
  ASSERT_TRUE(a.send("b", "lost").ok());
  network.run_for(milliseconds(999));
  EXPECT_TRUE(a.is_connected("b"));
  network.run_for(milliseconds(1));  // silence_probe + silence_max
  EXPECT_FALSE(a.is_connected("b"));
  EXPECT_FALSE(b.is_connected("a"));
  EXPECT_EQ(b.messages.size(), 0u);
  network.run_for(seconds(10));
  EXPECT_GE(a.count("failed b"), 2);
  net().heal("a", "b");
  ASSERT_TRUE(until([&] { return a.is_connected("b") && b.is_connected("a"); }));
  network.run_for(seconds(10));
  EXPECT_EQ(b.messages.size(), 0u);  // never comes later, on another connection
}

TEST_F(VirtualFaults, AShortPartitionOnlyDelays) {
  connect();
  ASSERT_TRUE(a.send("b", "0").ok());
  net().partition("a", "b");
  std::vector<std::string> expected{"0"};
  for (int i = 1; i < 60; ++i) {
    ASSERT_TRUE(a.send("b", std::to_string(i)).ok());
    expected.push_back(std::to_string(i));
    network.run_for(milliseconds(i % 3 == 0 ? 5 : 0));
  }
  net().heal("a", "b");
  ASSERT_TRUE(a.send("b", "60").ok());
  expected.push_back("60");
  ASSERT_TRUE(until([&] { return b.messages.size() == 61; }));
  EXPECT_EQ(b.messages, expected);
  EXPECT_EQ(a.count("closed b"), 0);
}

TEST_F(VirtualFaults, ADroppedConnectionLosesWhatIsOnTheWay) {
  connect();
  ASSERT_TRUE(a.send("b", "lost").ok());
  net().drop_connections("b", "a");
  ASSERT_TRUE(until([&] { return a.count("connected b#7") == 2; }));
  network.run_for(seconds(1));
  EXPECT_EQ(b.messages.size(), 0u);
  EXPECT_EQ(a.count("closed b"), 1);
  EXPECT_EQ(b.count("closed a"), 1);
}

TEST_F(VirtualFaults, ClosingInsideOfEventsIsAllowed) {
  connect();
  b.when_message = [&](ConnectionId connection, const std::string&) {
    b.channel->close(connection, make_error(Code::kCancelled, "heard enough"));
  };
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(a.send("b", "x").ok());
  ASSERT_TRUE(until([&] { return a.count("closed b") == 1 && b.count("closed a") == 1; }));
  EXPECT_EQ(b.messages.size(), 1u);  // no event after close()
}

TEST_F(VirtualFaults, AnAnswerMayCancelAnotherCallOfAConnectionThatEnds) {
  connect();
  b.answers = false;
  Result<CallId> second = make_error(Code::kInternal, "not made yet");
  int answers = 0;
  const ConnectionId id = a.connections.at("b");
  ASSERT_TRUE(a.channel
                  ->call(id, "1", seconds(60),
                         [&](auto) {
                           answers += 1;
                           a.channel->cancel(id, *second);
                         })
                  .ok());
  second = a.channel->call(id, "2", seconds(60), [&](auto) { answers += 100; });
  ASSERT_TRUE(second.ok());
  net().drop_connections("a", "b");
  ASSERT_TRUE(until([&] { return a.count("closed b") == 1; }));
  EXPECT_EQ(answers, 1);
}

TEST_F(VirtualFaults, RedialsWaitLongerEachTimeUpToTheMaximum) {
  network.open(a, options_of(a));
  std::vector<io::Time> failed;
  a.when_line = [&](const std::string&) { failed.push_back(network.executor.now()); };
  ASSERT_TRUE(a.channel->connect("b", "nowhere").ok());
  network.run_for(seconds(5));
  ASSERT_GE(failed.size(), 8u);
  // The waits are 20, 40, 80, 160, 200 ... ms +- 20 %; an attempt takes two delays, up to 1 ms.
  const double expected_ms[] = {20, 40, 80, 160, 200, 200, 200};
  for (size_t i = 0; i < 7; ++i) {
    const double waited_ms =
        std::chrono::duration<double, std::milli>(failed[i + 1] - failed[i]).count();
    EXPECT_GE(waited_ms, expected_ms[i] * 0.8) << i;
    EXPECT_LE(waited_ms, expected_ms[i] * 1.2 + 1) << i;
  }
}

/// Two dialling processes and one that all talk to, under random faults; what all of them saw.
std::vector<std::string> random_run(uint64_t seed) {
  io::VirtualExecutor executor;
  VirtualNetwork network(executor, seed);
  std::mt19937_64 random(seed);
  Recorder processes[3] = {Recorder("a"), Recorder("b"), Recorder("c")};
  std::vector<std::string> seen;
  std::map<std::string, int> connected;  // per observer and peer; checks "exactly once"
  for (Recorder& process : processes) {
    ChannelOptions options;
    options.self = {process.name, 1};
    options.seed = seed;
    process.channel = std::move(*network.open(options, process.name, process));
    process.when_line = [&](const std::string& line) {
      seen.push_back(std::to_string(executor.now().time_since_epoch().count()) + " " +
                     process.name + " " + line);
      // One connection of a pair may come before the older has ended.
      if (line.starts_with("connected ")) {
        EXPECT_LE(++connected[process.name + line.substr(10, 1)], 2) << seen.back();
      }
      if (line.starts_with("closed ")) {
        EXPECT_GE(--connected[process.name + line.substr(7)], 0) << seen.back();
      }
    };
  }
  for (const char* name : {"a", "b"}) {
    EXPECT_TRUE(processes[name[0] - 'a'].channel->connect("c", "c").ok());
  }
  for (int step = 0; step < 300; ++step) {
    Recorder& from = processes[random() % 3];
    const std::string to(1, static_cast<char>('a' + random() % 3));
    if (from.is_connected(to)) {
      if (random() % 4 == 0) {
        (void)from.call(to, std::to_string(step), milliseconds(random() % 20));
      } else {
        (void)from.send(to, std::to_string(step));
      }
      if (random() % 20 == 0) {
        from.channel->close(from.connections.at(to), make_error(Code::kCancelled, "test"));
      }
    }
    if (random() % 20 == 0) network.drop_connections(from.name, to);
    if (random() % 30 == 0) network.partition(from.name, to);
    if (random() % 10 == 0) network.heal(from.name, to);
    executor.run_for(milliseconds(random() % 40));
  }
  for (const char* name : {"a", "b"}) network.heal(name, "c");
  executor.run_for(seconds(30));
  EXPECT_TRUE(processes[0].is_connected("c") && processes[1].is_connected("c")) << "seed " << seed;
  return seen;
}

TEST(VirtualNetwork, ARunDependsOnItsSeedAlone) {
  const auto first = random_run(1);
  EXPECT_EQ(first, random_run(1));
  EXPECT_NE(first, random_run(2));
  EXPECT_GT(first.size(), 100u);
}

TEST(VirtualNetwork, EveryRunEndsConnected) {
  for (uint64_t seed = 1; seed <= 200; ++seed) random_run(seed);
}

}  // namespace
}  // namespace tandem::rpc
