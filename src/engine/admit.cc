// Who holds KV pages: waiting sequences get theirs, running ones grow, and when the pages run out
// the youngest gives its own back.
#include <algorithm>

#include "engine/engine_core.h"

namespace tandem::engine {

void EngineCore::admit_waiting() {
  while (!waiting_.empty() && running_.size() + awaiting_.size() < options_.limits.sequences_max &&
         !cache_->quarantine_is_full()) {
    if (!try_admit(*waiting_.front())) return;  // first come, first served: nobody overtakes
    std::unique_ptr<Sequence> sequence = std::move(waiting_.front());
    waiting_.pop_front();
    const bool imports = sequence->request.kv_way == KvWay::kImport &&
                         sequence->tokens_computed + 1 < sequence->tokens.size();
    if (imports) {
      await_kv(std::move(sequence));
    } else if (sequence->is_export()) {
      begin_export(std::move(sequence));
    } else {
      running_.push_back(std::move(sequence));
    }
  }
}

/// Sequences that will need more pages.
size_t EngineCore::growing_count() const {
  const auto running =
      std::ranges::count_if(running_, [](const auto& sequence) { return !sequence->is_export(); });
  return static_cast<size_t>(running) + awaiting_.size();
}

bool EngineCore::try_admit(Sequence& sequence) {
  const Limits& limits = options_.limits;
  if (sequence.request.kv_way != KvWay::kHere && !may_lend()) return false;
  const uint32_t reused =
      cache_->match_prefix(sequence.cache, sequence.tokens, sequence.request.cache_salt);
  // One page of headroom per running sequence, or the next step would preempt what this admits.
  const bool fits = cache_->grow(sequence.cache, sequence.tokens_wanted()) &&
                    cache_->pages_available() >= growing_count();
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
  for (size_t i = 0; i < running_.size();) {
    if (cache_->grow(running_[i]->cache, running_[i]->tokens_wanted())) {
      ++i;
    } else {
      preempt_youngest();  // this one, at last
    }
  }
}

void EngineCore::preempt_youngest() {
  auto youngest = running_.end();
  do {
    --youngest;
  } while ((*youngest)->is_export());
  std::unique_ptr<Sequence> sequence = std::move(*youngest);
  running_.erase(youngest);
  cache_->release(sequence->cache);
  sequence->tokens_computed = 0;
  waiting_.push_front(std::move(sequence));
  ++counters_.preemptions;
}

}  // namespace tandem::engine
