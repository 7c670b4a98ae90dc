// Goal: membership, channels and the board together follow workers that join, drain, die, are cut
// off and return, as a router would use them. Method: one router and three workers in virtual time;
// random deaths, returns and partitions. After each calm the board must give work, and only to
// workers that run.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>

#include "cluster/worker_board.h"
#include "io/virtual_executor.h"
#include "rpc/virtual_channel.h"
#include "rpc/virtual_membership.h"

namespace tandem::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

uint64_t sum(std::span<const std::byte> bytes, uint64_t seed) {
  for (const std::byte byte : bytes) seed = seed * 31 + static_cast<uint64_t>(byte) + 1;
  return seed;
}

struct World {
  io::VirtualExecutor executor;
  rpc::VirtualNetwork network{executor, 1};
  rpc::VirtualRegistry registry{executor, 1, seconds(5)};
};

/// A worker that reports to whoever connects, and counts what it is asked.
struct Worker final : rpc::ChannelEvents, rpc::MembershipEvents {
  Worker(World& world, const std::string& id, uint64_t generation)
      : id(id), generation(generation), timers(world.executor) {
    rpc::ChannelOptions options;
    options.self = {id, generation};
    channel = std::move(*world.network.open(options, id, *this));
    membership = world.registry.open(id, *this);
    EXPECT_TRUE(membership
                    ->announce({.id = id,
                                .role = id[0] == 'd' ? rpc::Role::kDecode : rpc::Role::kPrefill,
                                .generation = generation,
                                .address = id})
                    .ok());
    report();
  }

  void report() {
    timers.after(milliseconds(100), [this] { report(); });
    // The number of requests it has seen; the test's router knows the rest.
    for (const auto& [connection, asked] : asked) {
      (void)channel->send(connection, std::to_string(asked));
    }
  }

  void on_connected(rpc::ConnectionId connection, const rpc::Peer&) override {
    asked[connection] = 0;
  }
  void on_message(rpc::ConnectionId connection, std::string) override { asked[connection] += 1; }
  void on_closed(rpc::ConnectionId connection, const rpc::Peer&, const Error&) override {
    asked.erase(connection);
  }
  void on_call(rpc::ConnectionId, rpc::CallId, std::string) override {}
  void on_call_cancelled(rpc::ConnectionId, rpc::CallId) override {}
  void on_connect_failed(const std::string&, const Error&) override {}
  void on_joined(const rpc::Member&) override {}
  void on_changed(const rpc::Member&) override {}
  void on_left(const rpc::Member&) override {}

  const std::string id;
  const uint64_t generation;
  std::map<rpc::ConnectionId, uint64_t> asked;
  io::Timers timers;
  std::unique_ptr<rpc::Membership> membership;
  std::unique_ptr<rpc::Channel> channel;
};

/// What a router does with all of it, without the requests.
struct Router final : rpc::ChannelEvents, rpc::MembershipEvents {
  explicit Router(World& world) {
    rpc::ChannelOptions options;
    options.self = {"router", 1};
    channel = std::move(*world.network.open(options, "router", *this));
    membership = world.registry.open("router", *this);
  }

  void on_joined(const rpc::Member& member) override {
    board.listed(member);
    EXPECT_TRUE(channel->connect(member.id, member.address).ok());
  }
  void on_changed(const rpc::Member& member) override { board.listed(member); }
  void on_left(const rpc::Member& member) override {
    board.left(member.id);
    channel->disconnect(member.id);
  }
  void on_connected(rpc::ConnectionId connection, const rpc::Peer& peer) override {
    connections[peer.name] = connection;
    names[connection] = peer.name;
    board.connected(peer.name, peer.generation);
  }
  void on_message(rpc::ConnectionId connection, std::string message) override {
    board.reported(names.at(connection), {.requests_included = std::stoull(message),
                                          .page_tokens = 16,
                                          .model_length_max = 1000,
                                          .ranks = {{.pages_total = 1000, .pages_free = 1000}}});
  }
  void on_closed(rpc::ConnectionId connection, const rpc::Peer& peer, const Error&) override {
    names.erase(connection);
    // With a new life listed at once, its connection may have come before.
    if (connections[peer.name] != connection) return;
    connections.erase(peer.name);
    board.disconnected(peer.name, "");
  }
  void on_call(rpc::ConnectionId, rpc::CallId, std::string) override {}
  void on_call_cancelled(rpc::ConnectionId, rpc::CallId) override {}
  void on_connect_failed(const std::string&, const Error&) override {}

  Result<Assignment> assign(std::vector<TokenId> prompt) {
    Assignment assignment = TANDEM_TRY(board.assign(prompt, "", 10));
    for (const std::string& name : {assignment.decode_worker, *assignment.prefill_worker}) {
      (void)channel->send(connections.at(name), "work");
    }
    return assignment;
  }

  WorkerBoard board{{.prefix_keys = {&sum, 1, 16}}};
  std::map<std::string, rpc::ConnectionId> connections;
  std::map<rpc::ConnectionId, std::string> names;
  std::unique_ptr<rpc::Membership> membership;
  std::unique_ptr<rpc::Channel> channel;
};

void random_life(uint64_t seed) {
  World world;
  std::mt19937_64 random(seed);
  std::map<std::string, std::unique_ptr<Worker>> workers;
  uint64_t generations = 0;
  Router router(world);
  for (int step = 0; step < 60; ++step) {
    const std::string id = std::vector<std::string>{"d0", "p0", "p1"}[random() % 3];
    switch (random() % 6) {
      case 0:
        workers.erase(id);
        break;
      case 1:
      case 2:
        workers.erase(id);
        workers[id] = std::make_unique<Worker>(world, id, ++generations);
        break;
      case 3:
        world.network.partition(id, "router");
        world.registry.set_reachable(id, false);
        break;
      case 4:
        world.network.drop_connections(id, "router");
        break;
      default:
        world.registry.set_reachable("router", random() % 2 == 0);
    }
    for (int i = 0; i < 5; ++i) {
      (void)router.assign(std::vector<TokenId>(40, static_cast<TokenId>(random() % 5)));
      world.executor.run_for(milliseconds(random() % 500));
    }
    if (random() % 4 != 0) continue;
    for (const char* name : {"d0", "p0", "p1", "router"}) {
      world.network.heal(name, "router");
      world.registry.set_reachable(name, true);
    }
    world.executor.run_for(seconds(20));
    const bool served =
        workers.contains("d0") && (workers.contains("p0") || workers.contains("p1"));
    const auto assignment = router.assign({1, 2, 3});
    ASSERT_EQ(assignment.ok(), served) << "seed " << seed << " step " << step
                                       << (assignment.ok() ? "" : ": " + assignment.error().what);
    for (const auto& [name, worker] : workers) {
      ASSERT_TRUE(router.connections.contains(name)) << "seed " << seed << " step " << step;
      ASSERT_EQ(router.membership->members().at(name).generation, worker->generation);
    }
    ASSERT_EQ(router.connections.size(), workers.size()) << "seed " << seed << " step " << step;
  }
}

TEST(ClusterLife, AfterEachCalmWhoRunsServes) {
  for (uint64_t seed = 1; seed <= 100; ++seed) random_life(seed);
}

}  // namespace
}  // namespace tandem::cluster
