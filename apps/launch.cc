#include "apps/launch.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "apps/memory_plan.h"
#include "engine/rank_set.h"
#include "io/host.h"
#include "io/socket.h"

namespace tandem::apps {
namespace {

constexpr const char* kHost = "127.0.0.1";

/// Flags of `serve` that a worker takes as they are.
constexpr const char* kPassedOn[] = {"--model",
                                     "--dtype",
                                     "--max-model-len",
                                     "--matrix-path",
                                     "--max-num-seqs",
                                     "--max-num-batched-tokens",
                                     "--max-num-queued-reqs",
                                     "--max-num-queued-tokens",
                                     "--block-size",
                                     "--kv-cache-tokens",
                                     "--enable-prefix-caching",
                                     "--collective-late-after",
                                     "--handoff-policy"};

/// As the user gave them; what is left out has the same default in the worker.
std::vector<std::string> given_flags(const CLI::App& serve) {
  std::vector<std::string> arguments;
  for (const char* name : kPassedOn) {
    const CLI::Option* option = serve.get_option(name);
    // Of a flag that was repeated the last one counts, there as here.
    if (option->count() > 0)
      arguments.push_back(fmt::format("{}={}", name, option->results().back()));
  }
  return arguments;
}

/// What one worker of this layout needs.
Result<size_t> bytes_of_worker(const WorkerModel& model, const model::Layout& layout,
                               bool receives_kv, const cpu::HostMemory& host) {
  size_t heap_bytes = 0;
  if (layout.ranks_count() > 1) {
    heap_bytes = TANDEM_TRY(engine::RankSet::heap_bytes({.config = model.config,
                                                         .layout = layout,
                                                         .limits = model.limits,
                                                         .compute = model.compute}));
  }
  const MemoryDemand demand{
      .config = model.config,
      .compute = model.compute,
      .model_length_max = model.limits.model_length_max,
      .step = engine::StepMemory::options_of(model.limits, model.compute),
      .threads_count = std::max(1, model.threads_count / layout.ranks_count()),
      .size_flags = SizeFlags::kLengthAndCache,
      .layout = layout,
      .ranks_count = layout.ranks_count(),
      .heap_bytes = heap_bytes,
      .receives_kv = receives_kv};
  return plan_memory(demand, host).needed_bytes();
}

Error no_secret(const char* what) {
  return make_error(Code::kUnavailable, fmt::format("cannot {} a secret for the workers: {}", what,
                                                    std::strerror(errno)));
}

}  // namespace

Result<ClusterSecret> ClusterSecret::create() {
  std::array<std::byte, 32> random{};
  TANDEM_TRY(io::fill_random(random));
  std::string text;
  for (std::byte byte : random) text += fmt::format("{:02x}", static_cast<int>(byte));
  io::FileDescriptor memory(memfd_create("tandem-cluster-secret", MFD_CLOEXEC));
  if (memory.get() < 0) return no_secret("keep");
  if (write(memory.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return no_secret("write");
  }
  return ClusterSecret(std::move(memory));
}

std::string ClusterSecret::path() const {
  return fmt::format("/proc/{}/fd/{}", getpid(), memory_.get());
}

std::string members_text(std::span<const rpc::Member> workers) {
  std::string text;
  for (const rpc::Member& worker : workers) {
    text += fmt::format("{}{}:{}@{}", text.empty() ? "" : ",", rpc::role_name(worker.role),
                        worker.id, worker.address);
  }
  return text;
}

Result<void> check_workers(const LaunchOptions& options, const model::ModelConfig& config) {
  const auto check = [&](const model::Layout& layout, const std::string& flags) -> Result<void> {
    const auto shard = model::Shard::create(config, layout, 0);
    return shard.ok() ? Result<void>() : with_context(shard.error(), flags);
  };
  TANDEM_TRY(check(options.prefill_layout(),
                   fmt::format("--prefill-tp {}", options.prefill_tensor_parallel)));
  return check(options.decode_layout(),
               fmt::format("--decode-tp {} --decode-dp {}", options.decode_tensor_parallel,
                           options.decode_data_parallel));
}

Result<void> require_memory_of_workers(const LaunchOptions& options, const WorkerModel& model,
                                       const cpu::HostMemory& host) {
  const size_t prefill = TANDEM_TRY(bytes_of_worker(model, options.prefill_layout(), false, host));
  const size_t decode = TANDEM_TRY(bytes_of_worker(model, options.decode_layout(), true, host));
  const size_t needed = static_cast<size_t>(options.prefill_workers) * prefill +
                        static_cast<size_t>(options.decode_workers) * decode;
  if (needed <= host.available_bytes()) return {};
  return make_error(
      Code::kResourceExhausted,
      fmt::format("--prefill-workers {} with {} each and --decode-workers {} with {} each need {}, "
                  "and {} are available: start fewer, or lower --kv-cache-tokens",
                  options.prefill_workers, bytes_text(prefill), options.decode_workers,
                  bytes_text(decode), bytes_text(needed), bytes_text(host.available_bytes())));
}

Result<std::vector<rpc::Member>> plan_workers(const LaunchOptions& options) {
  std::vector<rpc::Member> workers;
  std::vector<io::Listener> ports;  // all at once, so that no two get the same
  const auto plan = [&](rpc::Role role, int count) -> Result<void> {
    for (int i = 0; i < count; ++i) {
      ports.push_back(TANDEM_TRY(io::Listener::listen_tcp({.host = kHost, .port = 0})));
      workers.push_back({.id = fmt::format("{}-{}", rpc::role_name(role), i),
                         .role = role,
                         .address = fmt::format("{}:{}", kHost, ports.back().port())});
    }
    return {};
  };
  // Ended in this order: decode workers still hear from prefill workers that writes are over.
  TANDEM_TRY(plan(rpc::Role::kDecode, options.decode_workers));
  TANDEM_TRY(plan(rpc::Role::kPrefill, options.prefill_workers));
  return workers;
}

std::vector<Supervisor::Child> worker_processes(const CLI::App& serve,
                                                std::span<const rpc::Member> workers,
                                                const LaunchSettings& settings) {
  const std::vector<std::string> given = given_flags(serve);
  const int threads = std::max(1, settings.threads_count / static_cast<int>(workers.size()));
  std::vector<Supervisor::Child> children;
  for (const rpc::Member& worker : workers) {
    const model::Layout layout = worker.role == rpc::Role::kDecode
                                     ? settings.layout.decode_layout()
                                     : settings.layout.prefill_layout();
    std::vector<std::string> arguments = {
        "worker",
        fmt::format("--role={}", rpc::role_name(worker.role)),
        fmt::format("--name={}", worker.id),
        fmt::format("--listen={}", worker.address),
        fmt::format("--discovery={}", members_text(workers)),
        fmt::format("--cluster-secret-file={}", settings.secret_path),
        fmt::format("--data-interface={}", kHost),
        fmt::format("--parent-pid={}", getpid()),
        fmt::format("--threads={}", threads),
        fmt::format("--tensor-parallel-size={}", layout.tensor_parallel),
        fmt::format("--data-parallel-size={}", layout.data_parallel)};
    arguments.insert(arguments.end(), given.begin(), given.end());
    children.push_back({worker.id, {"/proc/self/exe", std::move(arguments)}});
  }
  return children;
}

}  // namespace tandem::apps
