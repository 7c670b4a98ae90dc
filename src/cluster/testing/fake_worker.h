#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/wire/worker_message.h"
#include "io/timers.h"
#include "io/virtual_executor.h"
#include "rpc/virtual_channel.h"
#include "rpc/virtual_membership.h"

namespace tandem::cluster {

/// In which processes live.
struct World {
  io::VirtualExecutor executor;
  rpc::VirtualNetwork network{executor, 1};
  rpc::VirtualRegistry registry{executor, 1, std::chrono::seconds(5)};
};

inline TokenId token_of(TokenId prompt, size_t index) {
  return (prompt * 7 + static_cast<TokenId>(index)) % 1000;
}

/// Reports, and generates a token per request and 10 ms.
class FakeWorker final : public rpc::ChannelEvents, public rpc::MembershipEvents {
 public:
  FakeWorker(World& world, const std::string& id, uint64_t generation, size_t groups = 1)
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
        say_event(cancel->request, {.finish = engine::FinishReason::kCancelled});
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
                       {.finish = engine::FinishReason::kError,
                        .error = make_error(Code::kUnavailable, "its rank 1 is gone")});
    }
    EXPECT_TRUE(running.emplace(submit.request.id, std::pair(submit, size_t{0})).second);
  }
  void report() {
    timers_.after(std::chrono::milliseconds(100), [this] { report(); });
    if (!subscribed_ || !reports) return;
    Report report{.requests_included = number_, .page_tokens = 16, .model_length_max = 1000};
    report.groups.resize(groups_);
    for (engine::EngineStatus& group : report.groups) {
      group.ready = true;
      group.pages_total = 1000;
    }
    for (const auto& [id, request] : running) report.groups[request.first.group].pages_used += 10;
    say(encode(report));
  }
  void generate() {
    timers_.after(std::chrono::milliseconds(10), [this] { generate(); });
    if (!generates || !router_) return;
    Events events;
    for (auto next = running.begin(); next != running.end();) {
      auto& [submit, count] = next->second;
      engine::Event& event = events.events.emplace_back();
      event.id = next->first;
      event.tokens = {{.token = token_of(submit.request.prompt[0], count++)}};
      const bool ends = count == submit.request.tokens_max;
      if (ends) event.finish = engine::FinishReason::kLength;
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

}  // namespace tandem::cluster
