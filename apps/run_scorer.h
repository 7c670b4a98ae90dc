#pragma once

#include <memory>

#include "apps/load.h"
#include "engine/scorer.h"

namespace tandem::apps {

/// A scorer with all that it runs on.
struct RunningScorer {
  std::unique_ptr<model::Qwen3> model;
  std::unique_ptr<engine::Scorer> scorer;
};

/// Loads the weights, if they fit. `folder` must outlive the scorer.
Result<RunningScorer> start_scorer(const ModelFolder& folder);

}  // namespace tandem::apps
