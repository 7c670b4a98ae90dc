#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cluster/router.h"
#include "cluster/testing/fake_worker.h"

namespace tandem::cluster {

using engine::FinishReason;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

inline uint64_t sum(std::span<const std::byte> bytes, uint64_t seed) {
  for (const std::byte byte : bytes) seed = seed * 31 + static_cast<uint64_t>(byte) + 1;
  return seed;
}

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

  FakeWorker& come(const std::string& id, size_t groups = 1) {
    workers_[id].reset();
    workers_[id] = std::make_unique<FakeWorker>(world_, id, ++generations_, groups);
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
  std::map<std::string, std::unique_ptr<FakeWorker>> workers_;
  uint64_t generations_ = 0;
  Sink sink_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<rpc::Membership> membership_;
  std::unique_ptr<rpc::Channel> channel_;
};

}  // namespace tandem::cluster
