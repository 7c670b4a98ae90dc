#include "engine/engine_router.h"

#include <algorithm>
#include <utility>

namespace tandem::engine {

Result<void> EngineRouter::submit(Request request, EventSink& sink) {
  using Load = std::pair<bool, uint32_t>;  // not ready, requests
  const size_t first = turn_.fetch_add(1, std::memory_order_relaxed);
  std::vector<std::pair<Load, EngineClient*>> choices;
  for (size_t i = 0; i < engines_.size(); ++i) {
    EngineClient* engine = engines_[(first + i) % engines_.size()];
    const EngineStatus status = engine->status();
    choices.push_back({{!status.ready, status.requests_running + status.requests_waiting}, engine});
  }
  std::ranges::stable_sort(choices, {}, &std::pair<Load, EngineClient*>::first);
  Result<void> answer;
  for (const auto& [load, engine] : choices) {
    // A copy: should this engine have been lost since it was asked, the next one gets it.
    auto next = engine->submit(request, sink);
    const bool lost = !next.ok() && next.error().code == Code::kUnavailable;
    if (!lost) return next;
    if (answer.ok()) answer = std::move(next);
  }
  return answer;
}

void EngineRouter::cancel(RequestId id) {
  // Whoever does not know it ignores it; remembering where it went would cost more.
  for (EngineClient* engine : engines_) engine->cancel(id);
}

EngineStatus EngineRouter::status() const {
  EngineStatus sum;
  bool all_ready = true;
  for (const EngineClient* engine : engines_) {
    const EngineStatus status = engine->status();
    if (all_ready && (!status.ready || sum.reason.empty())) sum.reason = status.reason;
    sum.ready = sum.ready || status.ready;
    all_ready = all_ready && status.ready;
    if (status.lost_ranks.size() > sum.lost_ranks.size()) sum.lost_ranks = status.lost_ranks;
    sum.requests_running += status.requests_running;
    sum.requests_waiting += status.requests_waiting;
    sum.requests_awaiting_kv += status.requests_awaiting_kv;
    sum.pages_used += status.pages_used;
    sum.pages_total += status.pages_total;
    sum.pages_leased += status.pages_leased;
    sum.pages_quarantined += status.pages_quarantined;
    sum.steps += status.steps;
    sum.preemptions += status.preemptions;
    sum.imported_tokens += status.imported_tokens;
    sum.prompt_tokens += status.prompt_tokens;
    sum.generated_tokens += status.generated_tokens;
    sum.prefix_query_tokens += status.prefix_query_tokens;
    sum.prefix_hit_tokens += status.prefix_hit_tokens;
    sum.ranks.insert(sum.ranks.end(), status.ranks.begin(), status.ranks.end());
  }
  return sum;
}

}  // namespace tandem::engine
