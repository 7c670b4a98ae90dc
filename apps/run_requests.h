#pragma once

#include <functional>
#include <vector>

#include "engine/request.h"

namespace tandem::apps {

/// Who hears of the requests of one run_requests(), on its caller's thread.
struct RequestListener {
  std::function<void(engine::Event&)> on_event;
  /// Asked many times a second; true cancels all. Unset: never.
  std::function<bool()> interrupted;
};

/// Submits all requests at once and waits until each has ended. Ids must differ from all that the
/// engine still knows. The first failure of any request comes back when all have ended.
Result<void> run_requests(engine::EngineClient& engine, std::vector<engine::Request> requests,
                          const RequestListener& listener);

}  // namespace tandem::apps
