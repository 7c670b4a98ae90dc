// Goal: what a control message costs between two processes of one host.
// Method: two channels over the loopback interface and one loop for both, so that figures hold both
// ends. Calls one after another measure latency, messages sent in bulk measure the rate.

#include <benchmark/benchmark.h>

#include <string>

#include "base/check.h"
#include "io/event_loop.h"
#include "rpc/grpc_channel.h"

namespace tandem::rpc {
namespace {

struct Side final : ChannelEvents {
  void on_connected(ConnectionId id, const Peer&) override { connection = id; }
  void on_message(ConnectionId, std::string) override { messages += 1; }
  void on_call(ConnectionId id, CallId call, std::string request) override {
    channel->reply(id, call, std::move(request));
  }
  void on_call_cancelled(ConnectionId, CallId) override {}
  void on_closed(ConnectionId, const Peer&, const Error&) override {}
  void on_connect_failed(const std::string&, const Error&) override {}

  ConnectionId connection;
  int64_t messages = 0;
  std::unique_ptr<Channel> channel;
};

struct Pair {
  Pair() {
    const int port = open(b, "b");
    open(a, "a");
    TANDEM_CHECK(a.channel->connect("b", "127.0.0.1:" + std::to_string(port)).ok());
    run_until([&] { return a.connection != ConnectionId{} && b.connection != ConnectionId{}; });
  }
  int open(Side& side, const std::string& name) {
    GrpcChannelOptions options;
    options.channel.self.name = name;
    options.credentials.secret = "a secret of the benchmark";
    options.listen_address = "127.0.0.1:0";
    GrpcChannel opened = std::move(*open_grpc_channel(options, loop, side));
    side.channel = std::move(opened.channel);
    return opened.port;
  }
  void run_until(const std::function<bool()>& done) {
    TANDEM_CHECK(loop.run_until(done, loop.now() + std::chrono::seconds(60)));
  }

  io::EventLoop loop;
  Side a, b;
};

void call(benchmark::State& state) {
  Pair pair;
  const std::string request(static_cast<size_t>(state.range(0)), 'x');
  for (auto _ : state) {
    bool answered = false;
    const auto made = pair.a.channel->call(pair.a.connection, request, std::chrono::seconds(60),
                                           [&](auto) { answered = true; });
    TANDEM_CHECK(made.ok());
    pair.run_until([&] { return answered; });
  }
}
BENCHMARK(call)->Arg(16)->Arg(4096)->Arg(262144)->UseRealTime();

void messages(benchmark::State& state) {
  Pair pair;
  const std::string message(static_cast<size_t>(state.range(0)), 'x');
  constexpr int64_t kBatch = 256;
  for (auto _ : state) {
    const int64_t target = pair.b.messages + kBatch;
    for (int64_t i = 0; i < kBatch; ++i) {
      TANDEM_CHECK(pair.a.channel->send(pair.a.connection, message).ok());
    }
    pair.run_until([&] { return pair.b.messages == target; });
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(messages)->Arg(16)->Arg(4096)->UseRealTime();

}  // namespace
}  // namespace tandem::rpc
