#include "apps/run_scorer.h"

namespace tandem::apps {

Result<RunningScorer> start_scorer(const ModelFolder& folder) {
  const engine::Scorer::Options options{.model_length_max = folder.model_length_max,
                                        .kv_dtype = folder.compute};
  RunningScorer running;
  running.model =
      TANDEM_TRY(load_weights(folder, engine::Scorer::memory_of(options), SizeFlags::kLength));
  running.scorer = TANDEM_TRY(engine::Scorer::create(*folder.device, *running.model, options));
  return running;
}

}  // namespace tandem::apps
