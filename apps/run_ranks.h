#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/load.h"
#include "comm/process_group.h"
#include "comm/thread_group.h"
#include "engine/rank_set.h"
#include "model/sharding.h"

namespace tandem::apps {

/// How a model is spread, as a user says it.
struct LayoutOptions {
  model::Layout layout;
  bool expert_parallel = false;
  int expert_parallel_size = 0;  ///< 0: all ranks
  int nodes_count = 1;           ///< processes
  int node_rank = 0;
  engine::BalanceLimits balance;  ///< used with layout.rebalances_experts
  std::string address;            ///< where process 0 meets the others
  int meet_timeout_s = 60;
  double late_after_s = 2;  ///< a rank that is waited for so long is logged

  std::chrono::milliseconds late_after() const {
    return std::chrono::milliseconds(static_cast<int64_t>(late_after_s * 1000));
  }

  int ranks_per_node() const { return layout.ranks_count() / nodes_count; }
  /// Whether a rank of this process leads a group, so that it serves clients.
  bool leads_here() const {
    const int first = node_rank * ranks_per_node();
    const int group_end = (first + layout.tensor_parallel - 1) / layout.tensor_parallel;
    return group_end * layout.tensor_parallel < first + ranks_per_node();
  }
};

/// The flags of LayoutOptions, and that they suit each other, as far as a command line can tell.
void add_layout_flags(CLI::App& verb, LayoutOptions& options);

/// Whether these flags suit each other and the model; an error names the one that does not.
Result<void> check_layout(const LayoutOptions& options, const model::ModelConfig& config);

/// What a user may not expect of the layout, one log line each. `shard` is any rank's.
std::vector<std::string> layout_notices(const LayoutOptions& options, const model::Shard& shard);

/// The ranks of this process, with the group that they are in.
struct RunningRanks {
  std::unique_ptr<comm::ThreadGroup> threads;                    // one process
  std::vector<std::unique_ptr<comm::ProcessGroup>> memberships;  // several: one per rank
  std::unique_ptr<engine::RankSet> set;
  int threads_per_rank = 1;
};

/// What the ranks of this process do for other workers.
struct HandoffUse {
  bool receives_kv = false;  ///< others write K and V here
  std::function<engine::RankSet::GroupPorts(int group)> ports = [](int) {
    return engine::RankSet::GroupPorts{};
  };
};

/// Meets the other processes, loads the weights, if they fit, and starts the engines. An error
/// names the flag that does not suit the model or the others. `folder` must outlive it.
Result<RunningRanks> start_ranks(const ModelFolder& folder, const DeviceOptions& device,
                                 const LayoutOptions& options, const engine::Limits& limits,
                                 std::function<void(const Error&)> on_lost,
                                 const HandoffUse& handoffs = {});

}  // namespace tandem::apps
