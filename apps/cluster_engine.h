#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <thread>

#include "apps/cluster_flags.h"
#include "apps/cluster_network.h"
#include "apps/launch.h"
#include "apps/supervisor.h"
#include "base/result.h"
#include "cluster/router.h"
#include "io/event_loop.h"

namespace tandem::apps {

/// The engine of a server whose workers are other processes: a router on a thread "router", and the
/// workers themselves where this process starts them.
class ClusterEngine {
 public:
  struct Options {
    LaunchOptions launch;             ///< workers to start on this host
    ClusterOptions cluster;           ///< or where they are listed
    const CLI::App* serve = nullptr;  ///< whose flags the workers get, too
    int threads_count = 1;            ///< of this host
    uint32_t requests_max = 1024;     ///< under way
    /// A worker cannot be kept running. On some thread, once.
    std::function<void(const Error&)> on_lost;
  };
  static Result<std::unique_ptr<ClusterEngine>> start(const Options& options);
  /// Requests must have ended. Workers that were started here are told to end, and waited for.
  ~ClusterEngine();

  engine::EngineClient& client() { return *router_; }
  /// Returns once the workers can serve, or `is_lost` says that they never will.
  void wait_until_ready(const std::function<bool()>& is_lost) const;

 private:
  ClusterEngine() = default;
  Result<void> start_workers(const Options& options, ClusterNetwork::Options& network);

  std::unique_ptr<ClusterSecret> secret_;
  std::unique_ptr<Supervisor> workers_;
  io::EventLoop loop_;
  std::unique_ptr<cluster::Router> router_;
  std::unique_ptr<ClusterNetwork> network_;
  std::thread thread_;
};

}  // namespace tandem::apps
