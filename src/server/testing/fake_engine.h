#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/request.h"

namespace tandem::server::testing {

/// An engine for tests: a thread that plays a script of tokens per request, one event per request
/// and step, all events of a step in one call. Keeps the contract of EngineClient.
class FakeEngine final : public engine::EngineClient {
 public:
  struct Script {
    std::vector<TokenId> tokens;
    engine::FinishReason finish = engine::FinishReason::kStop;
    std::optional<Error> error;
    size_t tokens_per_event = 1;
    uint32_t cached_tokens = 0;
  };

  explicit FakeEngine(std::function<Script(const engine::Request&)> script)
      : script_(std::move(script)), thread_([this] { work(); }) {}

  ~FakeEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Result<void> submit(engine::Request request, engine::EventSink& sink) override {
    const std::lock_guard lock(mutex_);
    if (refuse_next_) return std::exchange(refuse_next_, std::nullopt).value();
    Running running{.request = request, .script = script_(request), .sink = &sink};
    submitted_.push_back(std::move(request));
    running_.emplace(running.request.id, std::move(running));
    changed_.notify_all();
    return {};
  }

  void cancel(RequestId id) override {
    const std::lock_guard lock(mutex_);
    const auto found = running_.find(id);
    if (found == running_.end()) return;
    found->second.cancelled = true;
    ++cancels_count_;
    changed_.notify_all();
  }

  engine::EngineStatus status() const override {
    const std::lock_guard lock(mutex_);
    engine::EngineStatus status = status_;
    status.requests_running = static_cast<uint32_t>(running_.size());
    return status;
  }

  void set_status(engine::EngineStatus status) {
    const std::lock_guard lock(mutex_);
    status_ = std::move(status);
  }
  /// The next submit() fails with this.
  void refuse(Error error) {
    const std::lock_guard lock(mutex_);
    refuse_next_ = std::move(error);
  }
  /// Lets `steps_count` more steps run, then holds still (cancelling still works).
  void hold_after(size_t steps_count) {
    const std::lock_guard lock(mutex_);
    steps_allowed_ = steps_count;
    changed_.notify_all();
  }
  void release() { hold_after(SIZE_MAX); }

  std::vector<engine::Request> submitted() const {
    const std::lock_guard lock(mutex_);
    return submitted_;
  }
  size_t cancels_count() const {
    const std::lock_guard lock(mutex_);
    return cancels_count_;
  }
  size_t running_count() const {
    const std::lock_guard lock(mutex_);
    return running_.size();
  }

 private:
  struct Running {
    engine::Request request;
    Script script;
    engine::EventSink* sink;
    size_t tokens_sent = 0;
    bool cancelled = false;
  };

  bool can_step() const {
    if (running_.empty()) return false;
    return steps_allowed_ > 0 || std::any_of(running_.begin(), running_.end(),
                                             [](const auto& one) { return one.second.cancelled; });
  }

  engine::Event next_event(Running& running) {
    engine::Event event{.id = running.request.id};
    event.prompt_tokens = static_cast<uint32_t>(running.request.prompt.size());
    event.cached_tokens = running.script.cached_tokens;
    if (running.cancelled) {
      event.finish = engine::FinishReason::kCancelled;
      return event;
    }
    const size_t end = std::min<size_t>(running.script.tokens.size(), running.request.tokens_max);
    for (size_t i = 0; i < running.script.tokens_per_event && running.tokens_sent < end; ++i) {
      const TokenId token = running.script.tokens[running.tokens_sent++];
      engine::GeneratedToken generated{.token = token};
      if (running.request.sampling.logprobs_count >= 0) {
        generated.logprob = -0.5f;
        for (int32_t k = 0; k < running.request.sampling.logprobs_count; ++k) {
          generated.top.push_back({.token = token + k, .logprob = -0.5f - static_cast<float>(k)});
        }
      }
      event.tokens.push_back(std::move(generated));
    }
    if (running.tokens_sent < end) return event;
    event.finish =
        end < running.script.tokens.size() ? engine::FinishReason::kLength : running.script.finish;
    event.error = running.script.error;
    event.timing = {.queue_us = 1000, .prefill_us = 2000, .decode_us = 3000};
    return event;
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || can_step(); });
      if (stopping_) return;
      const bool full_step = steps_allowed_ > 0;
      if (full_step && steps_allowed_ != SIZE_MAX) --steps_allowed_;
      std::map<engine::EventSink*, std::vector<engine::Event>> events;
      for (auto one = running_.begin(); one != running_.end();) {
        if (!full_step && !one->second.cancelled) {
          ++one;
          continue;
        }
        auto& list = events[one->second.sink];
        list.push_back(next_event(one->second));
        one = list.back().finish ? running_.erase(one) : std::next(one);
      }
      lock.unlock();
      for (auto& [sink, list] : events) sink->on_events(list);
      lock.lock();
    }
  }

  const std::function<Script(const engine::Request&)> script_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Running> running_;
  std::vector<engine::Request> submitted_;
  std::optional<Error> refuse_next_;
  engine::EngineStatus status_{.ready = true};
  size_t cancels_count_ = 0;
  size_t steps_allowed_ = SIZE_MAX;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tandem::server::testing
