#include "engine/engine_core.h"

#include <algorithm>

#include "engine/validate.h"

namespace tandem::engine {

Result<std::unique_ptr<EngineCore>> EngineCore::create(const Options& options, StepRunner& runner) {
  const Limits& l = options.limits;
  TANDEM_TRY(validate(l));
  auto cache = TANDEM_TRY(kv::CacheManager::create({.pages_total = l.pages_total,
                                                    .page_tokens = l.page_tokens,
                                                    .sequences_max = l.sequences_max,
                                                    .leases_max = l.leases_max,
                                                    .quarantine_pages_max = l.quarantine_pages_max,
                                                    .prefix_caching = l.prefix_caching,
                                                    .seed = l.prefix_seed}));
  return std::unique_ptr<EngineCore>(new EngineCore(options, runner, std::move(cache)));
}

EngineCore::EngineCore(const Options& options, StepRunner& runner,
                       std::unique_ptr<kv::CacheManager> cache)
    : options_(options), runner_(runner), cache_(std::move(cache)) {
  const size_t n = options.limits.sequences_max;
  running_.reserve(n);
  awaiting_.reserve(n);
  undrained_.reserve(options.limits.leases_max);
  leases_.reserve(options.limits.leases_max);
  exported_.reserve(n);
  views_.reserve(n);
  chunks_.reserve(n);
  items_.reserve(n);
  sampled_.resize(n);
  events_.resize(n);
  sinks_.resize(n);
  spare_tops_.resize(n);
  for (size_t i = 0; i < n; ++i) {
    events_[i].tokens.reserve(1);
    spare_tops_[i].reserve(ops::kTopLogprobsMax);
  }
}

void EngineCore::accept(Request request, EventSink& sink, int64_t submitted_us) {
  TANDEM_CHECK(request.kv_way != KvWay::kImport || options_.source != nullptr,
               "an import has a source");
  TANDEM_CHECK(request.kv_way != KvWay::kExport || options_.observer != nullptr,
               "an export has an observer");
  auto sequence = std::make_unique<Sequence>();
  sequence->tokens = std::move(request.prompt);
  sequence->prompt_tokens = static_cast<uint32_t>(sequence->tokens.size());
  for (const auto& bias : request.sampling.logit_bias) {
    sequence->bias.push_back({.token = bias.token, .bias = bias.bias});
  }
  sequence->request = std::move(request);
  sequence->sink = &sink;
  sequence->submitted_us = submitted_us;
  waiting_.push_back(std::move(sequence));
}

void EngineCore::cancel(RequestId id) {
  const auto matches = [id](const auto& sequence) { return sequence->request.id == id; };
  if (auto it = std::ranges::find_if(running_, matches); it != running_.end()) {
    finish(**it, FinishReason::kCancelled, nullptr);
  } else if (auto in = std::ranges::find_if(awaiting_, matches); in != awaiting_.end()) {
    finish(**in, FinishReason::kCancelled, nullptr);
  } else if (auto at = std::ranges::find_if(waiting_, matches); at != waiting_.end()) {
    finish(**at, FinishReason::kCancelled, nullptr);
  }
}

void EngineCore::fail_all(const Error& error) {
  for (auto& sequence : running_) finish(*sequence, FinishReason::kError, &error);
  for (auto& sequence : awaiting_) finish(*sequence, FinishReason::kError, &error);
  for (auto& sequence : waiting_) finish(*sequence, FinishReason::kError, &error);
  emit();
}

uint64_t EngineCore::waiting_tokens() const {
  uint64_t tokens = 0;
  for (const auto& sequence : waiting_) tokens += sequence->prompt_tokens;
  return tokens;
}

void EngineCore::fill(EngineStatus& status) const {
  const kv::CacheStats cache = cache_->stats();
  status.requests_running = static_cast<uint32_t>(running_.size());
  status.requests_waiting = static_cast<uint32_t>(waiting_.size());
  status.requests_awaiting_kv = static_cast<uint32_t>(awaiting_.size());
  status.pages_used = cache.pages_used;
  status.pages_leased = cache.pages_leased;
  status.pages_quarantined = cache.pages_quarantined;
  status.steps = counters_.steps;
  status.preemptions = counters_.preemptions;
  status.imported_tokens = counters_.imported_tokens;
  status.prompt_tokens = counters_.prompt_tokens;
  status.generated_tokens = counters_.generated_tokens;
  status.prefix_query_tokens = counters_.prefix_query_tokens;
  status.prefix_hit_tokens = counters_.prefix_hit_tokens;
}

bool EngineCore::step() {
  take_news();
  emit();  // requests cancelled since the last turn
  admit_waiting();
  grow_running();
  if (running_.empty()) {
    const bool others_have_pages = !awaiting_.empty() || cache_->leases_count() > 0;
    TANDEM_CHECK(waiting_.empty() || others_have_pages, "a sequence alone always fits the cache");
    emit();  // exports of which all was cached
    return !news_.empty();
  }
  if (const Result<void> ran = run_step(); ran.ok()) {
    update();
  } else {
    // The step is lost, and with it what its sequences wrote; the others were not touched.
    for (const Chunk& chunk : chunks_) {
      finish(*running_[chunk.sequence], FinishReason::kError, &ran.error());
    }
  }
  emit();
  return true;
}

}  // namespace tandem::engine
