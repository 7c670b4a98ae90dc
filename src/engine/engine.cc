#include "engine/engine.h"

#include <fmt/format.h>
#include <pthread.h>

#include <chrono>
#include <utility>

#include "base/list_text.h"
#include "engine/validate.h"

namespace tandem::engine {
namespace {

int64_t monotonic_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string lost_text(const std::vector<std::string>& ranks) {
  return fmt::format(
      "gone: {}; the other ranks go on, and requests that need an expert that is lost with them "
      "end with an error",
      list_text(ranks));
}

/// Twice what can live at once: every request that does, and as many that ended a moment ago. Only
/// ids that are unknown or repeated can fill it between two steps, and those are ignored anyway; a
/// cancellation that finds no room costs the rest of an answer that nobody hears.
size_t cancellations_max(const Limits& limits) {
  return 2 * (size_t{limits.queue_requests_max} + limits.sequences_max);
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(const Options& options, StepRunner& runner) {
  auto core = TANDEM_TRY(EngineCore::create({.limits = options.limits,
                                             .now_us = monotonic_us,
                                             .source = options.source,
                                             .observer = options.observer},
                                            runner));
  return std::unique_ptr<Engine>(new Engine(options, runner, std::move(core)));
}

Engine::Engine(const Options& options, const StepRunner& runner, std::unique_ptr<EngineCore> core)
    : limits_(options.limits),
      runner_(runner),
      standby_(options.standby),
      on_lost_(options.on_lost),
      core_(std::move(core)) {
  published_.pages_total = limits_.pages_total;
  // Who has an answer finds it in the metrics.
  core_->before_events([this] { publish(); });
  thread_ = std::thread([this] { loop(); });
  pthread_setname_np(thread_.native_handle(), "engine");
}

Engine::~Engine() {
  stop();
  thread_.join();
}

void Engine::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
}

void Engine::wake() {
  wake_.notify_one();
  if (standby_ != nullptr) standby_->ring();
}

Result<void> Engine::submit(Request request, EventSink& sink) {
  TANDEM_TRY(validate(request, limits_));
  {
    std::lock_guard lock(mutex_);
    if (lost_) return *lost_;
    if (stopping_) {
      return make_error(Code::kFailedPrecondition,
                        "the server is shutting down; send the request to another one");
    }
    const uint32_t queued = published_.requests_waiting + static_cast<uint32_t>(inbox_.size());
    if (queued >= limits_.queue_requests_max) {
      return make_error(
          Code::kResourceExhausted,
          fmt::format("{} requests are waiting already (--max-num-queued-reqs {}); try "
                      "again later",
                      queued, limits_.queue_requests_max));
    }
    if (queued > 0 && queued_tokens_ + request.prompt.size() > limits_.queue_tokens_max) {
      return make_error(Code::kResourceExhausted,
                        fmt::format("{} prompt tokens are waiting already (--max-num-queued-tokens "
                                    "{}); try again later",
                                    queued_tokens_, limits_.queue_tokens_max));
    }
    queued_tokens_ += request.prompt.size();
    inbox_.push_back({std::move(request), &sink, monotonic_us()});
  }
  wake();
  return {};
}

void Engine::cancel(RequestId id) {
  {
    std::lock_guard lock(mutex_);
    if (cancellations_.size() >= cancellations_max(limits_)) return;
    cancellations_.push_back(id);
  }
  wake();
}

void Engine::tell(KvNews news) {
  {
    std::lock_guard lock(mutex_);
    news_.push_back(std::move(news));
  }
  wake();
}

EngineStatus Engine::status() const {
  EngineStatus status;
  {
    std::lock_guard lock(mutex_);
    status = published_;
    status.requests_waiting += static_cast<uint32_t>(inbox_.size());
    status.ready = !stopping_;
    if (!status.ready) status.reason = "stopping";
    if (lost_) {
      status.ready = false;
      status.reason = lost_->what;
    }
  }
  if (standby_ != nullptr && status.ready) {
    status.lost_ranks = standby_->lost_ranks();
    if (!status.lost_ranks.empty()) status.reason = lost_text(status.lost_ranks);
  }
  runner_.append_ranks(status.ranks);
  for (RankStatus& rank : status.ranks) {
    rank.pages_used = status.pages_used;
    rank.pages_total = status.pages_total;
  }
  const int64_t started = step_started_us_.load(std::memory_order_relaxed);
  const int64_t step_ms = started == 0 ? 0 : (monotonic_us() - started) / 1000;
  if (step_ms > int64_t{limits_.stall_ms_max}) {
    status.ready = false;
    status.reason = fmt::format("rank 0 has been in one step for {} ms", step_ms);
  }
  return status;
}

void Engine::loop() {
  Result<void> rested;
  bool has_work = false;
  while (rested.ok()) {
    if (!has_work) rested = rest();
    {
      std::lock_guard lock(mutex_);
      if (stopping_) break;
      std::swap(taken_, inbox_);
      std::swap(taken_cancellations_, cancellations_);
      std::swap(taken_news_, news_);
      published_.requests_waiting += static_cast<uint32_t>(taken_.size());
    }
    take_inbox();
    step_started_us_.store(monotonic_us(), std::memory_order_relaxed);
    if (rested.ok()) has_work = core_->step();
    step_started_us_.store(0, std::memory_order_relaxed);
    publish();
  }
  if (!rested.ok()) refuse(rested.error());
  if (standby_ != nullptr) standby_->leave();
  if (!rested.ok()) wait_for_stop(rested.error());
  end(make_error(Code::kUnavailable, "the server shut down before the request ended"));
}

Result<void> Engine::rest() {
  if (standby_ != nullptr) return standby_->turn([this] { return has_news(); });
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return is_called(); });
  return {};
}

bool Engine::has_news() const {
  std::lock_guard lock(mutex_);
  return is_called();
}

/// Under the mutex.
bool Engine::is_called() const {
  return stopping_ || !inbox_.empty() || !cancellations_.empty() || !news_.empty();
}

/// The group is gone: nothing can be computed any more. Before the rank leaves: who sees that it
/// has left finds no engine that still takes requests.
void Engine::refuse(const Error& lost) {
  std::lock_guard lock(mutex_);
  lost_ = lost;
}

/// Nothing is left to do, but clients still ask.
void Engine::wait_for_stop(const Error& lost) {
  end(lost);
  if (on_lost_) on_lost_(lost);
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return stopping_; });
}

/// Ends what was accepted, queued or not.
void Engine::end(const Error& error) {
  {
    std::lock_guard lock(mutex_);
    std::swap(taken_, inbox_);
  }
  take_inbox();
  core_->fail_all(error);
  publish();
}

void Engine::take_inbox() {
  for (Submitted& submitted : taken_) {
    core_->accept(std::move(submitted.request), *submitted.sink, submitted.time_us);
  }
  taken_.clear();
  for (RequestId id : taken_cancellations_) core_->cancel(id);
  taken_cancellations_.clear();
  for (KvNews& news : taken_news_) core_->tell(std::move(news));
  taken_news_.clear();
}

void Engine::publish() {
  const uint64_t waiting_tokens = core_->waiting_tokens();
  std::lock_guard lock(mutex_);
  core_->fill(published_);
  queued_tokens_ = waiting_tokens;
  for (const Submitted& submitted : inbox_) queued_tokens_ += submitted.request.prompt.size();
}

}  // namespace tandem::engine
