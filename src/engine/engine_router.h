#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "engine/request.h"

namespace tandem::engine {

/// Several engines as one: a request goes to the engine with the fewest requests, by turns among
/// equals, and stays there. One that is lost (kUnavailable) takes none, so the next is asked; the
/// error of the first is returned when all are. Thread-safe.
class EngineRouter final : public EngineClient {
 public:
  /// The engines, at least one, outlive the router. An engine that is not ready gets no request
  /// while another is.
  explicit EngineRouter(std::vector<EngineClient*> engines) : engines_(std::move(engines)) {}

  Result<void> submit(Request request, EventSink& sink) override;
  void cancel(RequestId id) override;
  EngineStatus status() const override;  ///< sum_of() all

 private:
  const std::vector<EngineClient*> engines_;
  std::atomic<size_t> turn_{0};
};

}  // namespace tandem::engine
