// tandem serve MODEL: the OpenAI-compatible server, over one rank or many.
#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "apps/cluster_engine.h"
#include "apps/run_engine.h"
#include "apps/run_ranks.h"
#include "apps/sampling_flags.h"
#include "apps/start_report.h"
#include "apps/verbs.h"
#include "server/server.h"

namespace tandem::apps {
namespace {

struct ServeOptions {
  LoadOptions load;
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::vector<std::string> names;
  EngineOptions engine;
  LayoutOptions layout;
  LaunchOptions launch;
  ClusterOptions cluster;
  HandoffPolicyOptions handoff_policy;  ///< of workers that it starts
  uint32_t write_timeout_s = 30;
  bool log_no_requests = false;
  bool log_probes = false;

  /// Whether other processes compute.
  bool routes() const { return launch.starts_workers() || !cluster.discovery.empty(); }

  server::AccessLog access_log() const {
    if (log_no_requests) return server::AccessLog::kNone;
    return log_probes ? server::AccessLog::kAll : server::AccessLog::kRequests;
  }
};

// What a signal handler can reach; set before the handlers, unused once they are gone.
server::Server* g_server = nullptr;
pthread_t g_main_thread;

/// The first signal lets answers finish, the second cuts them.
void on_signal(int signal) {
  // On the main thread alone, no signal can still use a server that this thread destroys.
  if (pthread_equal(pthread_self(), g_main_thread) == 0) {
    pthread_kill(g_main_thread, signal);
    return;
  }
  static volatile std::sig_atomic_t signals = 0;
  signals = signals + 1;
  if (signals == 1) {
    g_server->drain();
  } else {
    g_server->stop();
  }
}

/// Whoever stops a group signals all of its processes, and a follower must not take its leader's
/// answers along: the first signal is left to the leader, the second ends this process.
void on_follower_signal(int signal) {
  std::signal(signal, SIG_DFL);
}

/// The last part of the folder's path, also where that is given as "models/tiny-moe/" or ".".
std::string name_of(const std::string& folder) {
  std::filesystem::path path = std::filesystem::absolute(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

void raise_open_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

/// Ends the server when no rank of this process can go on: then it can answer nothing, and whoever
/// started it should know.
class LossWatch {
 public:
  /// On any thread.
  void lose(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!loss_) loss_ = error;
    if (server_ != nullptr) server_->drain();
  }
  void watch(server::Server* server) {
    const std::lock_guard lock(mutex_);
    server_ = server;
    if (server_ != nullptr && loss_) server_->drain();
  }
  Result<void> result() const {
    const std::lock_guard lock(mutex_);
    return loss_ ? Result<void>(*loss_) : Result<void>();
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Error> loss_;
  server::Server* server_ = nullptr;
};

/// What the server needs to listen.
server::Server::Options front_of(const ServeOptions& options) {
  server::Server::Options front;
  front.host = options.host;
  front.port = options.port;
  front.write_stall_ms = static_cast<int>(options.write_timeout_s) * 1000;
  front.access_log = options.access_log();
  front.version = TANDEM_VERSION;
  front.model_names = options.names;
  if (front.model_names.empty()) front.model_names.push_back(name_of(options.load.model));
  return front;
}

/// Answers requests until a signal ends it, or a loss. What it prints once it serves is `report`'s.
Result<void> run_server(server::Server& server, LossWatch& losses,
                        const std::function<std::string()>& report) {
  g_server = &server;
  g_main_thread = pthread_self();
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  fmt::print("{}", report());
  std::fflush(stdout);
  losses.watch(&server);
  server.run();
  losses.watch(nullptr);
  // From here on it ends by itself: one more signal must not turn a clean end into a killed one.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  return losses.result();
}

StartFacts facts_of(const ServeOptions& options, const ModelFolder& folder,
                    const engine::Limits& limits, const server::Server::Options& front,
                    uint16_t port) {
  return {.folder = options.load.model,
          .names = front.model_names,
          .compute = folder.compute,
          .limits = limits,
          .matrix_path = cpu::matrix_path_name(folder.device->path()),
          .host = options.host,
          .port = port,
          .has_chat_template = folder.chat_template != nullptr};
}

/// The ranks of this process compute.
Result<void> serve_here(const ServeOptions& options, const ModelFolder& folder,
                        const engine::Limits& limits, const server::Server::Options& front,
                        std::unique_ptr<server::http::HttpServer> listening) {
  LossWatch losses;
  const RunningRanks running =
      TANDEM_TRY(start_ranks(folder, options.load.device, options.layout, limits,
                             [&losses](const Error& error) { losses.lose(error); }));
  engine::EngineClient* const engine = running.set->client();
  if (engine == nullptr) {
    std::signal(SIGINT, on_follower_signal);
    std::signal(SIGTERM, on_follower_signal);
    fmt::print("process {} of {} follows and ends with its leader\n", options.layout.node_rank,
               options.layout.nodes_count);
    std::fflush(stdout);
    running.set->wait_for_followers();
    return losses.result();
  }
  auto server = TANDEM_TRY(server::Server::create(front, std::move(listening), *engine,
                                                  *folder.tokenizer, folder.chat_template.get()));
  StartFacts facts = facts_of(options, folder, limits, front, server->port());
  facts.threads_per_rank = running.threads_per_rank;
  return run_server(*server, losses, [&] {
    return fmt::format("{}\n{}", start_report(facts, options.layout), example_call(facts));
  });
}

/// Worker processes compute; this one has the text and the clients.
Result<void> serve_cluster(const ServeOptions& options, const CLI::App& verb,
                           const ModelFolder& folder, const engine::Limits& limits,
                           const server::Server::Options& front,
                           std::unique_ptr<server::http::HttpServer> listening) {
  LossWatch losses;
  auto engine = TANDEM_TRY(
      ClusterEngine::start({.launch = options.launch,
                            .cluster = options.cluster,
                            .serve = &verb,
                            .threads_count = folder.device->threads_count(),
                            .requests_max = limits.queue_requests_max,
                            .on_lost = [&losses](const Error& error) { losses.lose(error); }}));
  // Where the workers are others' affair, /ready says what is missing.
  if (options.launch.starts_workers()) {
    engine->wait_until_ready([&losses] { return !losses.result().ok(); });
    TANDEM_TRY(losses.result());
  }
  auto server = TANDEM_TRY(server::Server::create(front, std::move(listening), engine->client(),
                                                  *folder.tokenizer, folder.chat_template.get()));
  const StartFacts facts = facts_of(options, folder, limits, front, server->port());
  return run_server(*server, losses, [&] {
    return fmt::format("{}\n{}", cluster_report(facts, options.launch), example_call(facts));
  });
}

Result<void> serve(const ServeOptions& options, const CLI::App& verb) {
  raise_open_files();
  const ModelFolder folder = TANDEM_TRY(open_model(options.load));
  const engine::Limits limits = TANDEM_TRY(limits_of(options.engine, folder));
  TANDEM_TRY(check_layout(options.layout, folder.files.config));
  server::Server::Options front = front_of(options);
  front.model_length_max = limits.model_length_max;
  front.stop_tokens = folder.stop_tokens;
  front.sampling = recommended_sampling(folder);
  // Before the long part of the start, which a port that is taken would make vain.
  if (options.launch.starts_workers()) {
    TANDEM_TRY(check_workers(options.launch, folder.files.config));
    TANDEM_TRY(require_memory_of_workers(options.launch,
                                         {.config = folder.files.config,
                                          .compute = folder.compute,
                                          .limits = limits,
                                          .threads_count = folder.device->threads_count()},
                                         cpu::read_host_memory()));
  }
  auto listening =
      options.layout.leads_here() ? TANDEM_TRY(server::Server::listen(front)) : nullptr;
  if (options.routes()) {
    return serve_cluster(options, verb, folder, limits, front, std::move(listening));
  }
  return serve_here(options, folder, limits, front, std::move(listening));
}

}  // namespace

Verb add_serve(CLI::App& app) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* verb = app.add_subcommand("serve", "serve a model over an OpenAI-compatible API");
  add_load_flags(*verb, options->load);
  verb->add_option("--host", options->host, "address to listen on")
      ->check(CLI::Validator(
          [](const std::string& text) -> std::string {
            return text.empty() ? "an empty address; 0.0.0.0 is all of this machine" : "";
          },
          ""));
  verb->add_option("--port", options->port, "port; 0: any free one")->check(CLI::Range(0, 65535));
  verb->add_option("--served-model-name", options->names, "name in the API (repeatable)");
  add_queue_flags(*verb, options->engine);
  verb->add_option("--write-timeout", options->write_timeout_s,
                   "seconds after which a client that reads nothing of its answer is cut off")
      ->check(CLI::Range(1, 3600));
  verb->add_flag("--disable-log-requests", options->log_no_requests,
                 "no log line per answered request");
  verb->add_flag("--log-probes", options->log_probes,
                 "log lines also for /health, /ready, /live, /version and /metrics");
  add_engine_flags(*verb, options->engine);
  add_layout_flags(*verb, options->layout);
  add_launch_flags(*verb, options->launch);
  add_cluster_flags(*verb, options->cluster);
  add_handoff_policy_flag(*verb, options->handoff_policy);
  verb->get_option("--handoff-policy")->needs(verb->get_option("--prefill-workers"));
  verb->get_option("--discovery")->excludes(verb->get_option("--prefill-workers"));
  return [options, verb] { return serve(*options, *verb); };
}

}  // namespace tandem::apps
