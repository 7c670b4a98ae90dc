#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cluster/handoff/decoder.h"
#include "cluster/handoff/testing/world.h"

namespace tandem::cluster::handoff::testing {

/// One decode group: the state machine, its pages and counts, and an engine that runs what is
/// admitted for a while.
class DecodeHost final : public DecoderPorts {
 public:
  enum class State { kQueued, kInHandoff, kRunning, kEnded };
  struct Request {
    Start start;
    State state = State::kQueued;
    uint32_t attempt = 0;
    bool computes_here = false;
    int ends = 0;
    std::optional<Error> error;
    std::optional<Key> key;
    uint64_t handoffs = 0;
    uint64_t runs = 0;  // stale timers compare it
    int64_t queued_us = 0;
    int64_t ended_us = 0;
  };

  DecodeHost(World& world, const Decoder::Options& options)
      : world_(world), memory_(world.shape, world.findings), machine_(options, *this) {
    tick();
  }

  RequestId submit(std::vector<TokenId> prompt, uint32_t first_position) {
    const RequestId id{requests_.size() + 1};
    Request& request = requests_[id.value];
    request.start.tokens = std::move(prompt);
    request.start.first_position = first_position;
    request.queued_us = now_us();
    pump();
    return id;
  }
  void cancel(RequestId id) {
    Request& request = requests_.at(id.value);
    if (request.state == State::kEnded) return;
    if (request.state == State::kInHandoff) machine_.cancel(id, now_us());
    if (request.state == State::kRunning) memory_.release_engine(id);
    end(request);
  }
  /// Takes the pages of a running request; what it generated becomes prompt.
  void preempt(RequestId id, uint32_t generated) {
    Request& request = requests_.at(id.value);
    if (request.state != State::kRunning) return;
    memory_.expect_right(request.start, "when it was preempted");
    memory_.release_engine(id);
    for (uint32_t i = 0; i < generated; ++i) {
      request.start.tokens.push_back(static_cast<TokenId>(i));
    }
    request.start.first_position = 0;
    queue(request, 0);
  }

  // DecoderPorts.
  void send(const Message& message) override { world_.carry(message.link, message, false); }
  void arm(Immediate immediate, uint32_t rank, uint32_t writes) override {
    counts_[{immediate.value, rank}] = {writes, 0};
  }
  void drop(Immediate immediate, uint32_t rank) override { counts_.erase({immediate.value, rank}); }
  void verify(Key key) override {
    const Start start = requests_.at(owner_.at(key).value).start;
    for (uint32_t rank = 0; rank < world_.shape.target_ranks; ++rank) {
      world_.timeline.after(world_.dice.between(10, verify_us), [=, this] {
        process_->deliver([=, this] {
          machine_.on_verdict(key, rank, memory_.verify(key, start, rank), now_us());
        });
      });
    }
  }
  void admit(RequestId id, Key) override {
    Request& request = requests_.at(id.value);
    request.key.reset();
    memory_.expect_right(request.start, "when it was admitted");
    run(request, id);
  }
  void fail(RequestId id, Error error, Policy next) override {
    Request& request = requests_.at(id.value);
    request.error = std::move(error);
    if (next == Policy::kFail) return end(request);
    request.computes_here = next == Policy::kRecompute;
    queue(request, request.attempt + 1);
  }
  void release(Key key) override {
    memory_.release(key);
    owner_.erase(key);
  }
  void fence(LinkId id) override {
    world_.timeline.after(world_.dice.between(100, 50'000), [this, id] {
      world_.links.at(id.value)->is_registered = false;
      process_->deliver([this, id] { machine_.on_fenced(id, now_us()); });
    });
  }

  void count(Key key, uint32_t rank) {
    const auto found = counts_.find({immediate_of(key).value, rank});
    if (found == counts_.end()) return;
    auto& [wanted, came] = found->second;
    if (++came != wanted) return;
    process_->deliver([=, this] { machine_.on_arrived(immediate_of(key), rank); });
  }

  Decoder& machine() { return machine_; }
  FakeMemory& memory() { return memory_; }
  const std::shared_ptr<Process>& process() { return process_; }
  Request& request(RequestId id) { return requests_.at(id.value); }
  uint64_t requests_count() const { return requests_.size(); }
  bool all_ended() const {
    return std::ranges::all_of(requests_, [](const auto& r) { return r.second.ends > 0; });
  }
  bool holds_nothing() const {
    return machine_.handoffs_count() == 0 && machine_.quarantined_pages() == 0 &&
           memory_.is_all_free() && counts_.empty();
  }
  int64_t verify_us = 2000;
  int64_t run_us = 300'000;
  int64_t deadline_us = 20'000'000;

 private:
  void queue(Request& request, uint32_t attempt) {
    request.state = State::kQueued;
    request.attempt = attempt;
    request.queued_us = now_us();
    request.key.reset();
  }

  /// Starts what is queued, as far as there are pages and links.
  void pump() {
    for (auto& [id, request] : requests_) {
      if (request.state != State::kQueued) continue;
      // Nobody to ask for long: the prompt is computed here.
      if (now_us() - request.queued_us > 10'000'000) request.computes_here = true;
      const auto pages = memory_.find_free(pages_count(request.start, world_.shape));
      if (!pages) continue;
      request.start.pages = *pages;
      request.start.writes = writes_of(request.start, world_.shape);
      if (request.computes_here) {
        memory_.compute_here(request.start);
        run(request, {id});
      } else {
        ask(request, {id});
      }
    }
  }
  void ask(Request& request, RequestId id) {
    const auto link = choose_link();
    if (!link) return;
    request.state = State::kInHandoff;
    const auto key = machine_.start(
        {id, *link, request.attempt, now_us() + deadline_us, request.start}, now_us());
    if (!key.ok()) {
      request.state = State::kQueued;
    } else if (*key) {
      request.key = **key;
      ++request.handoffs;
      owner_[**key] = id;
      memory_.hold(request.start.pages, **key);
    }
  }
  std::optional<LinkId> choose_link() {
    std::vector<LinkId> up;
    for (const auto& [id, link] : world_.links) {
      if (link->decoder == process_ && machine_.is_up({id})) up.push_back({id});
    }
    if (up.empty()) return std::nullopt;
    return up[world_.dice.number(up.size())];
  }
  void run(Request& request, RequestId id) {
    request.state = State::kRunning;
    memory_.hold_by_engine(request.start.pages, id);
    world_.timeline.after(world_.dice.between(1, run_us), [=, this, runs = ++request.runs] {
      process_->deliver([=, this] {
        Request& request = requests_.at(id.value);
        if (request.state != State::kRunning || request.runs != runs) return;
        memory_.expect_right(request.start, "at the end of a run");
        memory_.release_engine(id);
        request.error.reset();
        end(request);
      });
    });
  }
  void end(Request& request) {
    request.state = State::kEnded;
    request.ended_us = now_us();
    if (++request.ends > 1) world_.findings.push_back("a request ended twice");
  }
  void tick() {
    world_.timeline.after(20'000, [this] {
      process_->deliver([this] {
        if (machine_.next_timer_us().value_or(INT64_MAX) <= now_us()) machine_.on_timer(now_us());
        pump();
      });
      if (process_->is_alive) tick();
    });
  }
  int64_t now_us() const { return world_.timeline.now_us(); }

  World& world_;
  FakeMemory memory_;
  std::shared_ptr<Process> process_ = std::make_shared<Process>();
  std::map<uint64_t, Request> requests_;
  std::map<Key, RequestId> owner_;
  std::map<std::pair<uint32_t, uint32_t>, std::pair<uint32_t, uint32_t>> counts_;  // wanted, came
  Decoder machine_;
};

}  // namespace tandem::cluster::handoff::testing
