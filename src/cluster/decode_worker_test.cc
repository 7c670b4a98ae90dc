// Goal: routers know which prefill workers a decode worker cannot work with, and when that is over.
// Method: a decode worker without groups, a router and a prefill worker that answers as it is told,
// in virtual time.
#include "cluster/decode_worker.h"

#include <gtest/gtest.h>

#include "io/virtual_executor.h"
#include "rpc/virtual_channel.h"

namespace tandem::cluster {
namespace {

using namespace std::chrono_literals;

const kv::KvLayout kLayout{.element = kv::KvElement::kF32,
                           .layers = 1,
                           .kv_heads = 1,
                           .head_dim = 2,
                           .page_tokens = 4,
                           .pages_total = 8,
                           .rank_heads = kv::KvLayout::even_heads(1, 1)};

struct Peer : rpc::ChannelEvents {
  Peer(rpc::VirtualNetwork& network, const std::string& name) {
    rpc::ChannelOptions options;
    options.self = {name, 1};
    channel = network.open(options, name, *this).value();
  }
  void on_connected(rpc::ConnectionId, const rpc::Peer&) override {}
  void on_message(rpc::ConnectionId, std::string) override {}
  void on_call(rpc::ConnectionId, rpc::CallId, std::string) override {}
  void on_call_cancelled(rpc::ConnectionId, rpc::CallId) override {}
  void on_closed(rpc::ConnectionId, const rpc::Peer&, const Error&) override {}
  void on_connect_failed(const std::string&, const Error&) override {}
  std::unique_ptr<rpc::Channel> channel;
};

struct Prefill final : Peer {
  using Peer::Peer;
  void on_call(rpc::ConnectionId connection, rpc::CallId call, std::string) override {
    channel->reply(connection, call, answer);
  }
  Result<std::string> answer = make_error(Code::kFailedPrecondition, "dtype: bf16 here, f32 there");
};

struct Router final : Peer {
  Router(rpc::VirtualNetwork& network, const std::string& name) : Peer(network, name) {
    EXPECT_TRUE(channel->connect("d0", "d0").ok());
  }
  void on_connected(rpc::ConnectionId connection, const rpc::Peer&) override {
    EXPECT_TRUE(channel->send(connection, encode(WorkerMessage(Subscribe{}))).ok());
  }
  void on_message(rpc::ConnectionId, std::string bytes) override {
    const auto message = decode_message(bytes, {}).value();
    const auto* told = std::get_if<Mismatched>(&message);
    if (told != nullptr) reasons[told->prefill_worker] = told->reason;
  }
  std::map<std::string, std::string> reasons;
};

struct DecodeWorkerTest : testing::Test {
  DecodeWorkerTest() {
    DecodeWorker::Options options;
    options.name = "d0";
    options.self.layout = kLayout;
    worker = std::make_unique<DecodeWorker>(std::move(options), std::vector<DecodeWorker::Group>(),
                                            events, executor);
    rpc::ChannelOptions of_channel;
    of_channel.self = {"d0", 1};
    channel = network.open(of_channel, "d0", *worker).value();
    worker->start(*channel);
    worker->on_joined({.id = "p0", .role = rpc::Role::kPrefill, .generation = 1, .address = "p0"});
    executor.run_for(1s);
  }

  io::VirtualExecutor executor;
  rpc::VirtualNetwork network{executor, 1};
  io::PostBox box{executor};
  EventPort events{box};
  Prefill prefill{network, "p0"};
  Router early{network, "early"};
  std::unique_ptr<DecodeWorker> worker;
  std::unique_ptr<rpc::Channel> channel;
};

TEST_F(DecodeWorkerTest, RoutersHearOfAMismatchAndOfItsEnd) {
  EXPECT_EQ(early.reasons["p0"], "dtype: bf16 here, f32 there");
  Router late(network, "late");
  executor.run_for(1s);
  EXPECT_EQ(late.reasons["p0"], "dtype: bf16 here, f32 there");
  prefill.answer = encode(Welcome{.source = {.layout = kLayout, .ranks = {{{{std::byte{1}}}}}}});
  executor.run_for(1s);
  EXPECT_EQ(early.reasons["p0"], "");
  EXPECT_EQ(late.reasons["p0"], "");
}

}  // namespace
}  // namespace tandem::cluster
