#pragma once

#include <string>

#include "apps/checkpoint.h"
#include "apps/memory_plan.h"
#include "model/model_files.h"

namespace tandem::apps {

/// What `tandem inspect` shows, for people and for programs: the same facts in the same order.
struct InspectReport {
  const model::ModelFiles& files;
  const Checkpoint& checkpoint;
  const MemoryDemand& demand;
  MemoryPlan plan;
  uint32_t sequences_max = 0;
  bool lists_tensors = false;

  std::string text() const;
  std::string json() const;
};

}  // namespace tandem::apps
