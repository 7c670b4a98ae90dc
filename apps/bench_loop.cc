#include "apps/bench_loop.h"

#include <algorithm>
#include <chrono>

namespace tandem::apps {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint32_t kPageTokens = 16;

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch())
      .count();
}

}  // namespace

void BenchLoop::Sink::on_events(std::span<engine::Event> events) {
  for (const engine::Event& event : events) {
    tokens += event.tokens.size();
    if (event.error) error = event.error;
  }
}

engine::Limits BenchLoop::limits_of(const model::ModelConfig& config, const Options& options) {
  const auto vocabulary = static_cast<uint32_t>(config.vocab_size);
  return {.model_length_max = options.tokens_each,
          .sequences_max = options.sequences_max,
          .step_tokens_max = std::max(options.step_tokens_max, options.sequences_max),
          .page_tokens = kPageTokens,
          .pages_total =
              options.sequences_max * ((options.tokens_each + kPageTokens - 1) / kPageTokens),
          .vocabulary_size = vocabulary,
          .tokenizer_size = vocabulary,
          .prefix_caching = false};
}

Result<std::unique_ptr<BenchLoop>> BenchLoop::create(const BenchModel& model,
                                                     const Options& options) {
  const engine::Limits limits = limits_of(model.files.config, options);
  std::unique_ptr<BenchLoop> loop(new BenchLoop(model.files.config.vocab_size));
  loop->runner_ = TANDEM_TRY(engine::ModelRunner::create(
      *model.device, *model.model, {.limits = limits, .kv_dtype = model.dtype}));
  loop->core_ =
      TANDEM_TRY(engine::EngineCore::create({.limits = limits, .now_us = now_us}, *loop->runner_));
  return loop;
}

void BenchLoop::submit(uint32_t prompt, uint32_t tokens_max) {
  engine::Request request{
      .id = RequestId{next_id_++}, .sampling = {.temperature = 0.0f}, .tokens_max = tokens_max};
  for (uint32_t i = 0; i < prompt; ++i) request.prompt.push_back(any_token_(random_));
  prompt_tokens_ += prompt;
  core_->accept(std::move(request), sink_, now_us());
}

Result<void> BenchLoop::step() {
  core_->step();
  if (sink_.error) return *sink_.error;
  return {};
}

Result<void> BenchLoop::run_prompts() {
  while (core_->counters().prompt_tokens < prompt_tokens_) TANDEM_TRY(step());
  return {};
}

Result<double> BenchLoop::run_tokens(uint64_t tokens) {
  const uint64_t goal = sink_.tokens + tokens;
  const auto start = Clock::now();
  while (sink_.tokens < goal) TANDEM_TRY(step());
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace tandem::apps
