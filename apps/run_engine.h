#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>

#include "apps/load.h"
#include "engine/engine.h"
#include "engine/model_runner.h"

namespace tandem::apps {

/// What bounds an engine, as a user says it; the defaults are the engine's.
struct EngineOptions {
  uint32_t sequences_max = engine::Limits{}.sequences_max;
  uint32_t step_tokens_max = engine::Limits{}.step_tokens_max;
  uint32_t queue_requests_max = engine::Limits{}.queue_requests_max;
  uint64_t queue_tokens_max = engine::Limits{}.queue_tokens_max;
  uint32_t page_tokens = engine::Limits{}.page_tokens;
  uint32_t cache_tokens = 0;  ///< 0: up to four sequences of full length
  bool prefix_caching = engine::Limits{}.prefix_caching;
};

/// What bounds the pages that an engine shares with those of other workers.
struct HandoffOptions {
  uint32_t leases_max = 256;
  uint32_t quarantine_tokens_max = 0;  ///< 0: a quarter of the KV cache
};

/// The flags of HandoffOptions, for workers.
void add_handoff_flags(CLI::App& verb, HandoffOptions& options);

/// `limits` of an engine that takes part in hand-offs.
engine::Limits with_handoffs(engine::Limits limits, const HandoffOptions& options);

/// The flags of EngineOptions but the queue's, which only a server has.
void add_engine_flags(CLI::App& verb, EngineOptions& options);

/// The queue's.
void add_queue_flags(CLI::App& verb, EngineOptions& options);

/// The limits of an engine for a model of this shape; an error names the flag that is wrong.
/// `tokenizer_size` is 0 where no token will be sampled.
Result<engine::Limits> limits_of(const EngineOptions& options, const model::ModelConfig& config,
                                 uint32_t model_length_max, uint32_t tokenizer_size);
Result<engine::Limits> limits_of(const EngineOptions& options, const ModelFolder& folder);

/// A running engine with all that it runs on.
struct RunningEngine {
  std::unique_ptr<model::Qwen3> model;
  std::unique_ptr<engine::ModelRunner> runner;
  std::unique_ptr<engine::Engine> engine;
};

/// Loads the weights, if they fit, and starts the engine. `folder` must outlive it.
Result<RunningEngine> start_engine(const ModelFolder& folder, const engine::Limits& limits,
                                   SizeFlags size_flags);

}  // namespace tandem::apps
