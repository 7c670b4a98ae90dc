#pragma once

#include <memory>
#include <utility>

#include "base/result.h"
#include "engine/ports.h"
#include "transfer/rail.h"

namespace tandem::apps {

/// Where a bench may stand between the parts of a worker, to see what passes or to hold it back.
/// As it is, it stands nowhere. What it returns lives as long as it does, but for rails.
class WorkerTaps {
 public:
  virtual ~WorkerTaps() = default;
  virtual Result<std::unique_ptr<transfer::Rail>> rail(std::unique_ptr<transfer::Rail> rail) {
    return rail;
  }
  virtual engine::KvSource& source(engine::KvSource& source) { return source; }
  virtual engine::KvImport& imports(engine::KvImport& imports) { return imports; }
  virtual engine::StepObserver& observer(engine::StepObserver& observer) { return observer; }
};

}  // namespace tandem::apps
