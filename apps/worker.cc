// tandem worker MODEL: one worker process of a cluster, which computes prompts or generates.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "apps/child_process.h"
#include "apps/cluster_flags.h"
#include "apps/cluster_network.h"
#include "apps/data_ranks.h"
#include "apps/load.h"
#include "apps/model_fingerprint.h"
#include "apps/run_engine.h"
#include "apps/run_ranks.h"
#include "apps/run_worker.h"
#include "apps/signal_thread.h"
#include "apps/verbs.h"
#include "cluster/decode_worker.h"
#include "cluster/prefill_worker.h"
#include "io/event_loop.h"
#include "io/host.h"
#include "io/process.h"
#include "io/timers.h"
#include "model/safetensors_source.h"

namespace tandem::apps {
namespace {

bool decodes(const WorkerRun& options) {
  return options.worker.member_role() == rpc::Role::kDecode;
}

/// The thread of the worker's cluster part, and what engines tell it. Made before the engines,
/// which need it, and destroyed after them, as they tell the ends of what lives.
class Desk {
 public:
  Desk() : box_(loop_), exports_(box_), events_(box_) {}

  io::EventLoop& loop() { return loop_; }
  io::PostBox& box() { return box_; }
  cluster::ExportPort& exports() { return exports_; }
  cluster::EventPort& events() { return events_; }
  cluster::ReservationPort& reservations(size_t group) {
    while (reservations_.size() <= group) {
      reservations_.push_back(std::make_unique<cluster::ReservationPort>(box_));
    }
    return *reservations_[group];
  }

  /// Ends the loop with this error. Any thread.
  void fail(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
    loop_.stop();
  }
  Result<void> result() const {
    const std::lock_guard lock(mutex_);
    return error_ ? Result<void>(*error_) : Result<void>();
  }

 private:
  io::EventLoop loop_;
  io::PostBox box_;
  std::vector<std::unique_ptr<cluster::ReservationPort>> reservations_;  // of each decode group
  cluster::ExportPort exports_;
  cluster::EventPort events_;
  mutable std::mutex mutex_;
  std::optional<Error> error_;
};

/// What a signal does: before the worker serves, nothing is lost by ending at once; then the first
/// lets answers finish and the second cuts them.
class Stop {
 public:
  explicit Stop(Desk& desk) : desk_(desk), signals_([this](int count) { on_signal(count); }) {}
  /// From now on `drain` is called, on the loop, at the first signal.
  void serve(std::function<void()> drain) {
    drain_ = std::move(drain);
    serves_ = true;
  }

 private:
  void on_signal(int count) {
    if (!serves_) std::_Exit(EXIT_FAILURE);
    desk_.box().post([this, count] {
      if (count == 1) {
        drain_();
      } else {
        desk_.loop().stop();
      }
    });
  }

  Desk& desk_;
  std::function<void()> drain_;
  std::atomic<bool> serves_{false};
  SignalThread signals_;
};

class NobodyElse final : public rpc::MembershipEvents {
  void on_joined(const rpc::Member&) override {}
  void on_changed(const rpc::Member&) override {}
  void on_left(const rpc::Member&) override {}
};

Result<void> check_role(const WorkerRun& options) {
  if (!decodes(options) && options.layout.layout.data_parallel > 1) {
    return make_error(Code::kInvalidArgument,
                      "--data-parallel-size: a prefill worker is one group; start more workers, or "
                      "use --tensor-parallel-size");
  }
  if (options.layout.nodes_count > 1) {
    return make_error(Code::kUnimplemented,
                      "--nnodes: the ranks of a worker live in one process; start more workers");
  }
  return {};
}

Result<cluster::Hello> hello_of(const WorkerRun& options, const ModelFolder& folder,
                                const engine::Limits& limits, const kv::KvLayout& layout) {
  auto source = TANDEM_TRY(model::SafetensorsSource::open(folder.files.folder));
  cluster::Hello hello;
  hello.build = TANDEM_VERSION;
  hello.fingerprint = TANDEM_TRY(model_fingerprint(folder.files.folder, source));
  hello.compute = fmt::format("{} by {}", options.load.device.dtype,
                              cpu::matrix_path_name(folder.device->path()));
  hello.vocabulary_size = static_cast<int32_t>(limits.vocabulary_size);
  hello.model_length_max = limits.model_length_max;
  hello.layout = layout;
  return hello;
}

/// Serves until it is told to end, and has.
template <typename Worker>
Result<void> serve(const WorkerRun& options, Worker& worker, ClusterNetwork& network, Desk& desk,
                   Stop& stop) {
  worker.start(network.channel());
  rpc::Member self;
  self.id = options.worker.name;
  self.role = options.worker.member_role();
  self.address = options.worker.listen_address;
  TANDEM_TRY(network.announce(self));
  io::Timers timers(desk.loop());
  std::function<void()> end_when_idle = [&] {
    if (worker.is_idle()) return desk.loop().stop();
    timers.after(std::chrono::milliseconds(20), end_when_idle);
  };
  stop.serve([&] {
    network.drain();
    worker.drain();
    end_when_idle();
  });
  fmt::print("{} worker {} serves on {}\n", options.worker.role, options.worker.name,
             options.worker.listen_address);
  std::fflush(stdout);
  desk.loop().run();
  network.withdraw();
  return desk.result();
}

ClusterNetwork::Options network_of(const WorkerOptions& options) {
  return {.name = options.name,
          .listen_address = options.listen_address,
          .discovery = options.cluster.discovery,
          .credentials = options.cluster.credentials};
}

cluster::handoff::MessageLimits message_limits(const engine::Limits& limits) {
  cluster::handoff::MessageLimits messages;
  messages.tokens_max = limits.model_length_max;
  messages.vocabulary_size = static_cast<int32_t>(limits.vocabulary_size);
  return messages;
}

/// Whether a process of this host has ended.
std::function<bool()> watch(const io::ProcessName& process) {
  auto opened = io::ProcessWatch::open(process);
  if (!opened.ok()) return nullptr;
  const auto shared = std::make_shared<io::ProcessWatch>(*std::move(opened));
  return [shared] { return shared->has_ended(); };
}

Result<void> decode(const WorkerRun& options, cluster::Hello hello, const engine::Limits& limits,
                    engine::RankSet& set, Desk& desk, Stop& stop, WorkerTaps& taps) {
  std::vector<cluster::DecodeWorker::Group> groups;
  for (const engine::RankSet::Group& group : set.groups()) {
    groups.push_back({.engine = group.engine,
                      .imports = &taps.imports(*group.engine),
                      .ranks = TANDEM_TRY(open_data_ranks(group, options.worker.data, taps))});
  }
  cluster::DecodeWorker::Options own;
  own.name = options.worker.name;
  own.self = std::move(hello);
  own.limits = message_limits(limits);
  own.group.protocol.policy = options.worker.handoff_policy.value();
  own.group.link_seed = TANDEM_TRY(io::random_number());
  own.watch = watch;
  cluster::DecodeWorker worker(std::move(own), std::move(groups), desk.events(), desk.loop());
  for (size_t group = 0; group < set.groups().size(); ++group) {
    desk.reservations(group).connect(worker.reservations(group));
  }
  auto network =
      TANDEM_TRY(ClusterNetwork::open(network_of(options.worker), desk.loop(), worker, worker));
  return serve(options, worker, *network, desk, stop);
}

Result<void> prefill(const WorkerRun& options, cluster::Hello hello, const engine::Limits& limits,
                     engine::RankSet& set, Desk& desk, Stop& stop, WorkerTaps& taps) {
  const engine::RankSet::Group& group = set.groups().front();
  cluster::PrefillWorker::Options own;
  own.self = std::move(hello);
  // Without a name its end is not noticed on this host, as on others.
  if (auto name = io::own_process_name(); name.ok()) own.process = *std::move(name);
  own.limits = message_limits(limits);
  cluster::PrefillWorker worker(
      std::move(own), {.client = group.engine, .exports = group.engine, .events = &desk.events()},
      TANDEM_TRY(open_data_ranks(group, options.worker.data, taps)), desk.loop());
  desk.exports().connect(worker.exports());
  NobodyElse nobody;
  auto network =
      TANDEM_TRY(ClusterNetwork::open(network_of(options.worker), desk.loop(), worker, nobody));
  return serve(options, worker, *network, desk, stop);
}

}  // namespace

Result<void> run_worker(const WorkerRun& options, WorkerTaps& taps) {
  if (options.worker.parent_process_id != 0) {
    TANDEM_TRY(die_with_parent(options.worker.parent_process_id));
  }
  Desk desk;
  Stop stop(desk);
  TANDEM_TRY(check_role(options));
  const ModelFolder folder = TANDEM_TRY(open_model(options.load));
  const engine::Limits limits =
      with_handoffs(TANDEM_TRY(limits_of(options.engine, folder)), options.worker.handoffs);
  HandoffUse handoffs;
  handoffs.receives_kv = decodes(options);
  handoffs.ports = [&](int group) {
    if (!decodes(options))
      return engine::RankSet::GroupPorts{.observer = &taps.observer(desk.exports())};
    return engine::RankSet::GroupPorts{
        .source = &taps.source(desk.reservations(static_cast<size_t>(group)))};
  };
  const RunningRanks running = TANDEM_TRY(start_ranks(
      folder, options.load.device, options.layout, limits,
      [&desk](const Error& error) { desk.fail(error); }, handoffs));
  engine::RankSet& set = *running.set;
  cluster::Hello hello = TANDEM_TRY(hello_of(options, folder, limits, set.groups().front().layout));
  return decodes(options) ? decode(options, std::move(hello), limits, set, desk, stop, taps)
                          : prefill(options, std::move(hello), limits, set, desk, stop, taps);
}

Verb add_worker(CLI::App& app) {
  auto options = std::make_shared<WorkerRun>();
  CLI::App* verb = app.add_subcommand("worker", "compute prompts or generate, for a cluster");
  add_load_flags(*verb, options->load);
  add_engine_flags(*verb, options->engine);
  add_queue_flags(*verb, options->engine);
  add_layout_flags(*verb, options->layout);
  add_worker_flags(*verb, options->worker);
  return [options] {
    WorkerTaps none;
    return run_worker(*options, none);
  };
}

}  // namespace tandem::apps
