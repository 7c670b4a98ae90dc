// Who holds KV pages: waiting sequences get theirs, running ones grow, and when the pages run out
// the youngest gives its own back.
#include "engine/engine_core.h"

namespace tandem::engine {

void EngineCore::admit_waiting() {
  while (!waiting_.empty() && running_.size() < options_.limits.sequences_max) {
    if (!try_admit(*waiting_.front())) return;  // first come, first served: nobody overtakes
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

bool EngineCore::try_admit(Sequence& sequence) {
  const Limits& limits = options_.limits;
  const uint32_t reused =
      cache_->match_prefix(sequence.cache, sequence.tokens, sequence.request.cache_salt);
  // One page of headroom per running sequence, or the next step would preempt what this admits.
  const bool fits = cache_->grow(sequence.cache, static_cast<uint32_t>(sequence.tokens.size())) &&
                    (running_.empty() || cache_->pages_available() >= running_.size());
  if (!fits) {
    cache_->release(sequence.cache);
    return false;
  }
  sequence.tokens_computed = reused;
  if (limits.prefix_caching) counters_.prefix_query_tokens += sequence.tokens.size();
  counters_.prefix_hit_tokens += reused;
  if (sequence.scheduled_us == 0) {
    sequence.scheduled_us = options_.now_us();
    sequence.cached_tokens = reused;
    // From here on the sequence grows without allocating.
    const uint64_t tokens_max = uint64_t{sequence.prompt_tokens} + sequence.request.tokens_max;
    sequence.tokens.reserve(std::min<uint64_t>(tokens_max, limits.model_length_max));
  }
  return true;
}

void EngineCore::grow_running() {
  for (size_t i = 0; i < running_.size(); ++i) {
    const auto tokens = static_cast<uint32_t>(running_[i]->tokens.size());
    while (i < running_.size() && !cache_->grow(running_[i]->cache, tokens)) preempt_youngest();
  }
}

void EngineCore::preempt_youngest() {
  std::unique_ptr<Sequence> sequence = std::move(running_.back());
  running_.pop_back();
  cache_->release(sequence->cache);
  sequence->tokens_computed = 0;
  waiting_.push_front(std::move(sequence));
  ++counters_.preemptions;
}

}  // namespace tandem::engine
