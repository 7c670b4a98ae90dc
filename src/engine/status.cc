#include "engine/status.h"

namespace tandem::engine {

EngineStatus sum_of(std::span<const EngineStatus> statuses) {
  EngineStatus sum;
  bool all_ready = true;
  for (const EngineStatus& status : statuses) {
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
