#include "apps/run_engine.h"

#include <algorithm>
#include <limits>
#include <random>

#include "apps/number_flags.h"
#include "engine/validate.h"

namespace tandem::apps {

void add_engine_flags(CLI::App& verb, EngineOptions& options) {
  verb.add_option("--max-num-seqs", options.sequences_max, "sequences that run at once")
      ->check(CLI::Range(1, 1 << 20));
  verb.add_option("--max-num-batched-tokens", options.step_tokens_max, "tokens of one step");
  verb.add_option("--block-size", options.page_tokens, "tokens of one KV page")
      ->check(CLI::Range(1, 4096));
  verb.add_option("--kv-cache-tokens", options.cache_tokens,
                  "tokens the KV cache holds; 0: up to four sequences of full length");
  verb.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", options.prefix_caching,
                "share pages between equal prompts");
}

void add_queue_flags(CLI::App& verb, EngineOptions& options) {
  verb.add_option("--max-num-queued-reqs", options.queue_requests_max, "requests that may wait");
  verb.add_option("--max-num-queued-tokens", options.queue_tokens_max, "prompt tokens of those")
      ->check(unsigned_64());
}

void add_handoff_flags(CLI::App& verb, HandoffOptions& options) {
  verb.add_option("--max-num-kv-leases", options.leases_max,
                  "requests whose pages other workers may read or write, at a time")
      ->check(CLI::Range(1, 1 << 20));
  verb.add_option("--kv-quarantine-tokens", options.quarantine_tokens_max,
                  "tokens of the KV cache that may wait until no write can land in them; more, and "
                  "nothing is admitted; 0: a quarter of the cache");
}

engine::Limits with_handoffs(engine::Limits limits, const HandoffOptions& options) {
  limits.leases_max = options.leases_max;
  // Of a cache that is nearly all in quarantine nothing would be left to serve with; of a quarter
  // the rest still holds most of what it did.
  limits.quarantine_pages_max = options.quarantine_tokens_max == 0
                                    ? std::max(limits.pages_total / 4, uint32_t{1})
                                    : options.quarantine_tokens_max / limits.page_tokens;
  return limits;
}

Result<engine::Limits> limits_of(const EngineOptions& options, const model::ModelConfig& config,
                                 uint32_t model_length_max, uint32_t tokenizer_size) {
  const uint64_t wish =
      options.cache_tokens != 0
          ? options.cache_tokens
          : uint64_t{std::min(options.sequences_max, uint32_t{4})} * model_length_max;
  const uint64_t page_tokens = std::max(options.page_tokens, uint32_t{1});
  std::random_device random;
  const engine::Limits limits{
      .model_length_max = model_length_max,
      .sequences_max = options.sequences_max,
      .step_tokens_max = options.step_tokens_max,
      .queue_requests_max = options.queue_requests_max,
      .queue_tokens_max = options.queue_tokens_max,
      .page_tokens = options.page_tokens,
      .pages_total = static_cast<uint32_t>(std::min(
          (wish + page_tokens - 1) / page_tokens, uint64_t{std::numeric_limits<uint32_t>::max()})),
      .vocabulary_size = static_cast<uint32_t>(config.vocab_size),
      .tokenizer_size = tokenizer_size,
      .prefix_caching = options.prefix_caching,
      .prefix_seed = uint64_t{random()} << 32 | random()};
  TANDEM_TRY(engine::validate(limits));
  return limits;
}

Result<engine::Limits> limits_of(const EngineOptions& options, const ModelFolder& folder) {
  const model::ModelConfig& config = folder.files.config;
  const auto known = static_cast<uint32_t>(folder.tokenizer->vocabulary_size());
  return limits_of(options, config, folder.model_length_max,
                   std::min(static_cast<uint32_t>(config.vocab_size), known));
}

Result<RunningEngine> start_engine(const ModelFolder& folder, const engine::Limits& limits,
                                   SizeFlags size_flags) {
  RunningEngine running;
  running.model = TANDEM_TRY(
      load_weights(folder, engine::StepMemory::options_of(limits, folder.compute), size_flags));
  running.runner = TANDEM_TRY(engine::ModelRunner::create(
      *folder.device, *running.model, {.limits = limits, .kv_dtype = folder.compute}));
  running.engine = TANDEM_TRY(engine::Engine::create({.limits = limits}, *running.runner));
  return running;
}

}  // namespace tandem::apps
