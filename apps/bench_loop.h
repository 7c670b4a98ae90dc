#pragma once

#include <memory>
#include <optional>
#include <random>

#include "apps/bench_model.h"
#include "engine/engine_core.h"
#include "engine/model_runner.h"

namespace tandem::apps {

/// The engine's loop, fed with random prompts and timed from outside. Greedy, no stop tokens, no
/// prefix cache: every token that is asked for is computed.
class BenchLoop {
 public:
  struct Options {
    uint32_t sequences_max = 1;
    uint32_t tokens_each = 0;      ///< longest sequence, prompt and generated
    uint32_t step_tokens_max = 0;  ///< prompt tokens of one step
  };
  /// What the engine of such a loop is bounded by; its memory is planned from that.
  static engine::Limits limits_of(const model::ModelConfig& config, const Options& options);
  /// `model` must outlive the loop.
  static Result<std::unique_ptr<BenchLoop>> create(const BenchModel& model, const Options& options);

  void submit(uint32_t prompt, uint32_t tokens_max);
  /// Steps until every prompt that was submitted is computed.
  Result<void> run_prompts();
  /// Steps until `tokens` more tokens are generated; the seconds that took.
  Result<double> run_tokens(uint64_t tokens);
  Stream& stream() { return runner_->stream(); }

 private:
  class Sink final : public engine::EventSink {
   public:
    void on_events(std::span<engine::Event> events) override;
    uint64_t tokens = 0;
    std::optional<Error> error;
  };
  explicit BenchLoop(int64_t vocabulary) : any_token_(0, static_cast<TokenId>(vocabulary) - 1) {}

  Result<void> step();

  std::unique_ptr<engine::ModelRunner> runner_;
  std::unique_ptr<engine::EngineCore> core_;
  Sink sink_;
  std::mt19937 random_{1};
  std::uniform_int_distribution<TokenId> any_token_;
  uint64_t prompt_tokens_ = 0;
  uint64_t next_id_ = 1;
};

}  // namespace tandem::apps
