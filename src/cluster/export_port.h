#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "engine/ports.h"
#include "io/post_box.h"

namespace tandem::cluster {

/// engine::ScheduledTokens with its own list, so that it can leave the engine's thread.
struct ScheduledExport {
  RequestId request;
  uint32_t tokens_end = 0;  ///< positions [0, tokens_end) are computed after the step
  std::vector<PageId> pages;
};

class ExportEvents {
 public:
  virtual ~ExportEvents() = default;
  virtual void on_admitted(RequestId request, uint32_t cached_tokens,
                           std::vector<PageId> pages) = 0;
  virtual void on_scheduled(uint64_t step, std::vector<ScheduledExport> parts) = 0;
  virtual void on_layer_progress(int rank, uint64_t step, uint32_t layer) = 0;
};

/// Carries what a prefill worker's engine computes for others to the cluster's thread, in order.
/// Made before the engine, which needs it, and before the worker, which needs the engine.
class ExportPort final : public engine::StepObserver {
 public:
  /// `box` outlives this.
  explicit ExportPort(io::PostBox& box) : box_(box) {}
  /// Owner's thread, before the first request; `events` outlives the engine.
  void connect(ExportEvents& events) { events_ = &events; }

  void on_admitted(RequestId request, uint32_t cached_tokens,
                   std::span<const PageId> pages) override {
    box_.post([this, request, cached_tokens, copy = std::vector(pages.begin(), pages.end())] {
      events_->on_admitted(request, cached_tokens, copy);
    });
  }
  void on_scheduled(uint64_t step, std::span<const engine::ScheduledTokens> parts) override {
    std::vector<ScheduledExport> copies;
    for (const engine::ScheduledTokens& part : parts) {
      copies.push_back({part.request, part.tokens.end, {part.pages.begin(), part.pages.end()}});
    }
    box_.post([this, step, copies = std::move(copies)] { events_->on_scheduled(step, copies); });
  }
  void on_layer_progress(int rank, uint64_t step, uint32_t layer) override {
    box_.post([this, rank, step, layer] { events_->on_layer_progress(rank, step, layer); });
  }

 private:
  io::PostBox& box_;
  ExportEvents* events_ = nullptr;
};

}  // namespace tandem::cluster
