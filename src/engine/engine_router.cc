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
  std::vector<EngineStatus> statuses;
  for (const EngineClient* engine : engines_) statuses.push_back(engine->status());
  return sum_of(statuses);
}

}  // namespace tandem::engine
