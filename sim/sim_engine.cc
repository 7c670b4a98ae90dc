#include "sim/sim_engine.h"

#include <algorithm>
#include <iterator>

#include "engine/validate.h"

namespace tandem::sim {

using std::chrono::microseconds;

SimEngine::SimEngine(const Options& options, SimRunner& runner, io::Executor& executor)
    : options_(options),
      runner_(runner),
      executor_(executor),
      timers_(executor),
      random_(options.seed) {
  core_ = engine::EngineCore::create({.limits = options.limits,
                                      .now_us = [] { return int64_t{1}; },
                                      .source = options.source,
                                      .observer = options.observer},
                                     runner)
              .value();
  published_.pages_total = options.limits.pages_total;
}

SimEngine::~SimEngine() {
  executor_.forget(*this);
}

Result<void> SimEngine::submit(engine::Request request, engine::EventSink& sink) {
  TANDEM_TRY(engine::validate(request, options_.limits));
  const size_t queued = published_.requests_waiting + inbox_.size();
  if (queued >= options_.limits.queue_requests_max) {
    return make_error(Code::kResourceExhausted, "too many requests are waiting already");
  }
  inbox_.push_back({std::move(request), &sink});
  executor_.wake(*this);
  return {};
}

void SimEngine::cancel(RequestId id) {
  cancellations_.push_back(id);
  executor_.wake(*this);
}

void SimEngine::tell(engine::KvNews news) {
  news_.push_back(std::move(news));
  executor_.wake(*this);
}

engine::EngineStatus SimEngine::status() const {
  engine::EngineStatus status = published_;
  status.requests_waiting += static_cast<uint32_t>(inbox_.size());
  status.ready = true;
  return status;
}

void SimEngine::run() {
  if (is_in_step_) return;
  take_inbox();
  const bool has_work = core_->step();
  if (runner_.step() != 0) return begin_step();
  core_->fill(published_);
  tell_events();
  if (has_work) timers_.after(microseconds(20), [this] { run(); });
}

void SimEngine::take_inbox() {
  for (Submitted& submitted : std::exchange(inbox_, {})) {
    auto& held = sinks_[submitted.sink];
    if (held == nullptr) held = std::make_unique<Held>(*this, *submitted.sink);
    core_->accept(std::move(submitted.request), *held, 1);
  }
  for (const RequestId id : std::exchange(cancellations_, {})) core_->cancel(id);
  for (engine::KvNews& news : std::exchange(news_, {})) core_->tell(std::move(news));
}

/// The step is decided; its ranks now compute. Who watches their progress is a little late, and may
/// see it after the engine has gone on.
void SimEngine::begin_step() {
  is_in_step_ = true;
  const uint64_t step = runner_.step();
  const microseconds length(1 + below(static_cast<uint64_t>(options_.step_max.count())));
  const uint32_t layers = runner_.is_lost() ? 0 : runner_.layers();
  for (uint32_t rank = 0; rank < runner_.ranks().size(); ++rank) {
    std::vector<microseconds> times(layers);
    for (microseconds& time : times) {
      time = microseconds(below(static_cast<uint64_t>(length.count())));
    }
    std::ranges::sort(times);
    microseconds told{0};
    for (uint32_t layer = 0; layer < layers; ++layer) {
      timers_.after(times[layer], [this, rank, layer] { runner_.write(rank, layer); });
      if (options_.observer == nullptr) continue;
      told = std::max(told, times[layer] + microseconds(below(below(20) == 0 ? 5'000 : 100)));
      timers_.after(told, [this, rank, step, layer] {
        options_.observer->on_layer_progress(static_cast<int>(rank), step, layer);
      });
    }
  }
  timers_.after(length, [this] { end_step(); });
}

void SimEngine::end_step() {
  runner_.end_step();
  is_in_step_ = false;
  core_->fill(published_);
  tell_events();
  executor_.wake(*this);
}

void SimEngine::Held::on_events(std::span<engine::Event> events) {
  engine.held_.emplace_back(&sink, std::vector<engine::Event>(std::move_iterator(events.begin()),
                                                              std::move_iterator(events.end())));
}

void SimEngine::tell_events() {
  for (auto& [sink, events] : std::exchange(held_, {})) sink->on_events(events);
}

}  // namespace tandem::sim
