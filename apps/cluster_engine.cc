#include "apps/cluster_engine.h"

#include <fmt/format.h>
#include <pthread.h>

#include <chrono>
#include <cstdio>
#include <string_view>
#include <utility>

#include "io/host.h"
#include "kv/hash.h"

namespace tandem::apps {
namespace {

/// For the answers that a worker still writes, and for its memory to be given back.
constexpr std::chrono::seconds kPatience{10};
/// A prefix that is shorter is not worth a choice between workers.
constexpr uint32_t kPrefixBlockTokens = 32;

}  // namespace

Result<std::unique_ptr<ClusterEngine>> ClusterEngine::start(const Options& options) {
  std::unique_ptr<ClusterEngine> engine(new ClusterEngine);
  ClusterNetwork::Options network;
  network.name = "router";
  network.discovery = options.cluster.discovery;
  network.credentials = options.cluster.credentials;
  if (options.launch.starts_workers()) TANDEM_TRY(engine->start_workers(options, network));
  cluster::Router::Options router;
  router.requests_max = options.requests_max;
  router.board.prefix_keys = {.hash = kv::xxh3_hash,
                              .seed = TANDEM_TRY(io::random_number()),
                              .block_tokens = kPrefixBlockTokens};
  engine->router_ = std::make_unique<cluster::Router>(router, engine->loop_);
  engine->network_ =
      TANDEM_TRY(ClusterNetwork::open(network, engine->loop_, *engine->router_, *engine->router_));
  engine->router_->start(engine->network_->channel());
  engine->thread_ = std::thread([&loop = engine->loop_] { loop.run(); });
  pthread_setname_np(engine->thread_.native_handle(), "router");
  return engine;
}

Result<void> ClusterEngine::start_workers(const Options& options,
                                          ClusterNetwork::Options& network) {
  secret_ = std::make_unique<ClusterSecret>(TANDEM_TRY(ClusterSecret::create()));
  const std::vector<rpc::Member> workers = TANDEM_TRY(plan_workers(options.launch));
  network.discovery = members_text(workers);
  network.credentials.secret = secret_->path();
  Supervisor::Options supervisor;
  supervisor.children = worker_processes(*options.serve, workers,
                                         {.layout = options.launch,
                                          .secret_path = secret_->path(),
                                          .threads_count = options.threads_count});
  supervisor.on_given_up = options.on_lost;
  supervisor.print = [](std::string_view line) { fmt::print(stderr, "{}\n", line); };
  workers_ = TANDEM_TRY(Supervisor::start(std::move(supervisor)));
  return {};
}

ClusterEngine::~ClusterEngine() {
  loop_.stop();
  if (thread_.joinable()) thread_.join();
  network_.reset();
  router_.reset();
  if (workers_ != nullptr) workers_->stop(kPatience);
}

void ClusterEngine::wait_until_ready(const std::function<bool()>& is_lost) const {
  while (!is_lost() && !router_->status().ready) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace tandem::apps
