#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/engine_core.h"
#include "io/timers.h"
#include "sim/sim_runner.h"

namespace tandem::sim {

/// engine::Engine in virtual time: EngineCore with its inbox, as a task of its process. A step
/// takes a while, in which its ranks write layer after layer, each at its own pace; what it tells
/// leaves at its end.
class SimEngine final : public engine::EngineClient, public engine::KvPorts, private io::Task {
 public:
  struct Options {
    engine::Limits limits;
    engine::KvSource* source = nullptr;
    engine::StepObserver* observer = nullptr;
    std::chrono::microseconds step_max{4'000};
    uint64_t seed = 0;
  };
  /// What is given here outlives this.
  SimEngine(const Options& options, SimRunner& runner, io::Executor& executor);
  ~SimEngine() override;

  Result<void> submit(engine::Request request, engine::EventSink& sink) override;
  void cancel(RequestId id) override;
  engine::EngineStatus status() const override;
  void tell(engine::KvNews news) override;

 private:
  struct Submitted {
    engine::Request request;
    engine::EventSink* sink;
  };
  /// Keeps what a step tells a sink until the step is over.
  struct Held final : engine::EventSink {
    Held(SimEngine& of_engine, engine::EventSink& of_sink) : engine(of_engine), sink(of_sink) {}
    void on_events(std::span<engine::Event> events) override;
    SimEngine& engine;
    engine::EventSink& sink;
  };

  void run() override;
  void take_inbox();
  void begin_step();
  void end_step();
  void tell_events();
  uint64_t below(uint64_t end) { return random_() % end; }

  const Options options_;
  SimRunner& runner_;
  io::Executor& executor_;
  io::Timers timers_;
  std::mt19937_64 random_;
  std::unique_ptr<engine::EngineCore> core_;
  std::vector<Submitted> inbox_;
  std::vector<RequestId> cancellations_;
  std::vector<engine::KvNews> news_;
  std::map<engine::EventSink*, std::unique_ptr<Held>> sinks_;
  std::vector<std::pair<engine::EventSink*, std::vector<engine::Event>>> held_;
  engine::EngineStatus published_;
  bool is_in_step_ = false;
};

}  // namespace tandem::sim
