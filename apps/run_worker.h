#pragma once

#include "apps/cluster_flags.h"
#include "apps/load.h"
#include "apps/run_engine.h"
#include "apps/run_ranks.h"
#include "apps/worker_taps.h"
#include "base/result.h"

namespace tandem::apps {

/// One worker process, as a user says it.
struct WorkerRun {
  LoadOptions load;
  EngineOptions engine;
  LayoutOptions layout;
  WorkerOptions worker;
};

/// Serves until a signal ends it. Takes the calling thread and the process's SIGINT and SIGTERM.
Result<void> run_worker(const WorkerRun& options, WorkerTaps& taps);

}  // namespace tandem::apps
