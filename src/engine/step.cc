// From running sequences to sampled tokens: the plan, the batch, the run.
#include "engine/engine_core.h"

namespace tandem::engine {

Result<void> EngineCore::run_step() {
  views_.clear();
  for (const auto& sequence : running_) {
    views_.push_back(
        {.tokens_known = sequence->tokens_wanted(), .tokens_computed = sequence->tokens_computed});
  }
  schedule(views_, options_.limits.step_tokens_max, chunks_);

  items_.clear();
  size_t samples_count = 0;
  for (const Chunk& chunk : chunks_) {
    Sequence& sequence = *running_[chunk.sequence];
    const uint32_t end = sequence.tokens_computed + chunk.tokens;
    const bool samples = end == sequence.tokens.size();
    if (samples) {
      prepare_sample(sequence);
      ++samples_count;
    }
    items_.push_back({.tokens = std::span(sequence.tokens).first(end),
                      .start = sequence.tokens_computed,
                      .pages = sequence.cache.pages(),
                      .sample = samples ? &sequence.sample : nullptr});
  }
  ++counters_.steps;
  tell_observer();
  const auto ran = runner_.run(counters_.steps, items_, std::span(sampled_).first(samples_count));
  if (!exported_.empty()) options_.observer->on_step_ended(counters_.steps);
  return ran;
}

void EngineCore::tell_observer() {
  exported_.clear();
  for (const Chunk& chunk : chunks_) {
    const Sequence& sequence = *running_[chunk.sequence];
    if (!sequence.is_export()) continue;
    const uint32_t first = sequence.tokens_computed;
    exported_.push_back({.request = sequence.request.id,
                         .tokens = {first, first + chunk.tokens},
                         .pages = sequence.cache.pages()});
  }
  if (!exported_.empty()) options_.observer->on_scheduled(counters_.steps, exported_);
}

void EngineCore::prepare_sample(Sequence& sequence) {
  const SamplingParams& p = sequence.request.sampling;
  const std::span<const TokenId> tokens = sequence.tokens;
  const bool stop_masked = sequence.generated_tokens() < sequence.request.tokens_min;
  sequence.sample = {
      .temperature = p.temperature,
      .top_k = p.top_k,
      .top_p = p.top_p,
      .min_p = p.min_p,
      .presence_penalty = p.presence_penalty,
      .frequency_penalty = p.frequency_penalty,
      .repetition_penalty = p.repetition_penalty,
      .seed = p.seed,
      .choice_index = sequence.request.choice_index,
      .position = static_cast<uint32_t>(tokens.size()),
      .bias = sequence.bias,
      .prompt = tokens.first(sequence.prompt_tokens),
      .generated = tokens.subspan(sequence.prompt_tokens),
      .masked_tokens = stop_masked ? std::span<const TokenId>(sequence.request.stop_tokens)
                                   : std::span<const TokenId>(),
      .logprobs_count = p.logprobs_count,
      .vocabulary_limit = static_cast<int32_t>(options_.limits.tokenizer_size),
  };
}

}  // namespace tandem::engine
