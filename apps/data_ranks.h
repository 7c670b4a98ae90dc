#pragma once

#include <vector>

#include "apps/worker_taps.h"
#include "base/result.h"
#include "cluster/delivery/data_rank.h"
#include "engine/rank_set.h"
#include "transfer/libfabric/options.h"

namespace tandem::apps {

/// The ranks of a group in the data plane: a rail over this network each, with a thread
/// "transfer-N". `group` outlives them.
Result<std::vector<cluster::DataRank>> open_data_ranks(const engine::RankSet::Group& group,
                                                       const transfer::LibfabricOptions& network,
                                                       WorkerTaps& taps);

}  // namespace tandem::apps
