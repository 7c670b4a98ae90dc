#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/child_process.h"
#include "apps/cluster_flags.h"
#include "apps/supervisor.h"
#include "base/result.h"
#include "cpu/host_memory.h"
#include "engine/limits.h"
#include "io/open_file.h"
#include "model/sharding.h"
#include "rpc/membership.h"

namespace tandem::apps {

/// A secret that a process makes up for itself and its children. It lies in memory, so no file is
/// left behind, whatever the process dies of.
class ClusterSecret {
 public:
  static Result<ClusterSecret> create();
  /// Of a file that this user's processes can read while this object lives.
  std::string path() const;

 private:
  explicit ClusterSecret(io::FileDescriptor memory) : memory_(std::move(memory)) {}
  io::FileDescriptor memory_;
};

/// Whether workers of these layouts can hold the model; an error names the flag that is wrong.
Result<void> check_workers(const LaunchOptions& options, const model::ModelConfig& config);

/// What every worker runs.
struct WorkerModel {
  const model::ModelConfig& config;
  DType compute = DType::kBF16;
  engine::Limits limits;
  int threads_count = 1;  ///< of one worker
};
/// kResourceExhausted when all workers together need more than `host` has: each would see the same
/// free memory, and find that it fits. check_workers() has passed.
Result<void> require_memory_of_workers(const LaunchOptions& options, const WorkerModel& model,
                                       const cpu::HostMemory& host);

/// The workers of `serve`, decode workers first, with names and ports of this host that were free a
/// moment ago.
Result<std::vector<rpc::Member>> plan_workers(const LaunchOptions& options);

/// As parse_discovery reads it.
std::string members_text(std::span<const rpc::Member> workers);

/// What is the same for all of them.
struct LaunchSettings {
  LaunchOptions layout;
  std::string secret_path;
  int threads_count = 1;  ///< of the host, shared evenly
};

/// One child for each worker: this program, with the flags that the user gave to `serve` and that a
/// worker has, too. All know each other by a static list.
std::vector<Supervisor::Child> worker_processes(const CLI::App& serve,
                                                std::span<const rpc::Member> workers,
                                                const LaunchSettings& settings);

}  // namespace tandem::apps
