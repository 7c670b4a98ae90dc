#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/request.h"
#include "ops/sample/sample.h"

namespace tandem::engine {

/// One sequence's part of a step.
struct BatchItem {
  std::span<const TokenId> tokens;         ///< the sequence up to the end of this chunk
  uint32_t start = 0;                      ///< first position to compute
  std::span<const PageId> pages;           ///< cover all of `tokens`
  const ops::SampleRow* sample = nullptr;  ///< how to choose the next token; null in mid-prompt
};

/// An item of a step that could not be computed although the step was.
struct FailedItem {
  size_t item = 0;
  Error error;
};

/// Runs one step on whatever holds the model: a device, a group of ranks, a simulation.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  /// Computes all items and samples for those that ask: one result per such item, in order. An
  /// Error means that the whole step is lost. `step` counts from 1; who watches the progress of
  /// ranks meets it there (ports.h), or 0 when nobody does.
  virtual Result<void> run(uint64_t step, std::span<const BatchItem> items,
                           std::span<ops::SampledRow> sampled) = 0;
  /// Of the last run(), in order: what was sampled for them is worth nothing, and what they wrote
  /// into their pages must not be read. The other items are right.
  virtual std::span<const FailedItem> failed_items() const { return {}; }
  /// Appends what is known of each rank that takes part, but for pages. Thread-safe.
  virtual void append_ranks(std::vector<RankStatus>&) const {}
};

}  // namespace tandem::engine
