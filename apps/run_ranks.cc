#include "apps/run_ranks.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "apps/model_fingerprint.h"
#include "apps/number_flags.h"
#include "apps/usage.h"
#include "comm/heap_options.h"
#include "io/socket.h"
#include "model/safetensors_source.h"

namespace tandem::apps {

namespace {

constexpr int kRedundantExpertsMax = 1 << 16;
constexpr uint32_t kBalanceStepsMax = 1u << 30;

/// What a command line alone can tell.
Result<void> check_layout_flags(const LayoutOptions& options) {
  const int ranks = options.layout.ranks_count();
  if (options.expert_parallel_size != 0 && options.expert_parallel_size != ranks) {
    return make_error(
        Code::kInvalidArgument,
        fmt::format("--expert-parallel-size {}: experts go over all {} ranks (tensor-parallel x "
                    "data-parallel); leave it out or say {}",
                    options.expert_parallel_size, ranks, ranks));
  }
  if (ranks == 1 && options.layout.rebalances_experts) {
    return make_error(Code::kInvalidArgument,
                      "--enable-eplb: with one rank no expert has another place; use "
                      "--data-parallel-size or --tensor-parallel-size");
  }
  if (ranks % options.nodes_count != 0) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("--nnodes {}: {} ranks cannot be shared evenly among them",
                                  options.nodes_count, ranks));
  }
  if (options.node_rank >= options.nodes_count) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("--node-rank {}: with --nnodes {} use 0 to {}", options.node_rank,
                                  options.nodes_count, options.nodes_count - 1));
  }
  if (options.nodes_count == 1 && !options.address.empty()) {
    return make_error(
        Code::kInvalidArgument,
        fmt::format("--dist-init-addr {}: without --nnodes above 1 there is nobody to "
                    "meet; say how many processes there are, or leave it out",
                    options.address));
  }
  if (options.nodes_count > 1 && options.address.empty()) {
    return make_error(Code::kInvalidArgument,
                      "--nnodes needs --dist-init-addr HOST:PORT, where process 0 can listen");
  }
  if (options.nodes_count > 1 && TANDEM_TRY(io::parse_endpoint(options.address)).port == 0) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("--dist-init-addr {}: port 0 would be any free one, which the "
                                  "others cannot know; name one",
                                  options.address));
  }
  return {};
}

}  // namespace

Result<void> check_layout(const LayoutOptions& options, const model::ModelConfig& config) {
  TANDEM_TRY(check_layout_flags(options));
  if (config.experts_count == 0 && (options.expert_parallel || options.expert_parallel_size > 1)) {
    return make_error(Code::kInvalidArgument, "--enable-expert-parallel: the model has no experts");
  }
  return {};
}

namespace {

Result<std::unique_ptr<model::WeightSource>> open_weights(const ModelFolder& folder) {
  auto source = TANDEM_TRY(model::SafetensorsSource::open(folder.files.folder));
  return std::unique_ptr<model::WeightSource>(new model::SafetensorsSource(std::move(source)));
}

/// What processes must agree on before they meet.
Result<std::vector<std::pair<std::string, std::string>>> settings_of(const ModelFolder& folder,
                                                                     const DeviceOptions& device,
                                                                     const LayoutOptions& options,
                                                                     const engine::Limits& limits) {
  const auto text = [](auto value) { return fmt::to_string(value); };
  const model::ModelConfig& c = folder.files.config;
  const auto weights = TANDEM_TRY(open_weights(folder));
  return std::vector<std::pair<std::string, std::string>>{
      {"model", folder.files.folder.filename().string()},
      {"layers, hidden size, vocabulary",
       fmt::format("{}, {}, {}", c.layers_count, c.hidden_size, c.vocab_size)},
      {"content of config.json and weights",
       TANDEM_TRY(model_fingerprint(folder.files.folder, *weights))},
      {"--dtype", device.dtype},
      {"--matrix-path", device.matrix_path},
      {"--tensor-parallel-size", text(options.layout.tensor_parallel)},
      {"--data-parallel-size", text(options.layout.data_parallel)},
      {"--num-redundant-experts", text(options.layout.redundant_experts)},
      {"--enable-eplb", options.layout.rebalances_experts ? "on" : "off"},
      {"--eplb-window-size", text(options.balance.window_steps)},
      {"--eplb-step-interval", text(options.balance.interval_steps)},
      {"--nnodes", text(options.nodes_count)},
      {"--max-model-len", text(limits.model_length_max)},
      {"--max-num-seqs", text(limits.sequences_max)},
      {"--max-num-batched-tokens", text(limits.step_tokens_max)},
      {"--block-size", text(limits.page_tokens)},
      {"KV pages", text(limits.pages_total)}};
}

/// Every rank joins for itself, and joining ends when all have come.
Result<void> join(const comm::RendezvousOptions& common, int first_rank, int ranks_count,
                  std::vector<std::unique_ptr<comm::ProcessGroup>>& memberships) {
  memberships.resize(static_cast<size_t>(ranks_count));
  std::vector<Result<void>> results(memberships.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < memberships.size(); ++i) {
    threads.emplace_back([&, i] {
      comm::RendezvousOptions options = common;
      options.rank = first_rank + static_cast<int>(i);
      auto joined = comm::ProcessGroup::join(options);
      if (joined.ok()) {
        memberships[i] = std::move(*joined);
      } else {
        results[i] = joined.error();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Result<void>& result : results) TANDEM_TRY(result);
  return {};
}

std::vector<engine::RankSet::Member> members_of(RunningRanks& running, int first_rank,
                                                int ranks_count) {
  std::vector<engine::RankSet::Member> members;
  for (int rank = first_rank; rank < first_rank + ranks_count; ++rank) {
    engine::RankSet::Member& member = members.emplace_back();
    member.rank = rank;
    if (comm::ThreadGroup* group = running.threads.get()) {
      member.heap = &group->heap(rank);
      member.leave = [=] { group->leave(rank); };
      member.fail = [=](const std::string& reason) { group->fail(rank, reason); };
      member.regroup = [=](const std::string& brings) { return group->regroup(rank, brings); };
    } else if (!running.memberships.empty()) {
      comm::ProcessGroup* own = running.memberships[static_cast<size_t>(rank - first_rank)].get();
      member.heap = &own->heap();
      member.leave = [=] { own->leave(); };
      member.fail = [=](const std::string& reason) { own->fail(reason); };
      member.regroup = [=](const std::string& brings) { return own->regroup(brings); };
    }
  }
  return members;
}

}  // namespace

std::vector<std::string> layout_notices(const LayoutOptions& options, const model::Shard& shard) {
  std::vector<std::string> notices;
  const int ranks = options.layout.ranks_count();
  if (!shard.is_exact()) {
    notices.push_back(fmt::format(
        "layout_not_exact tensor_parallel={} effect=\"answers repeat, but may differ from those of "
        "one rank\" see=docs/ranks.md",
        options.layout.tensor_parallel));
  }
  if (ranks > 1 && shard.config.experts_count > 0 && !options.expert_parallel) {
    notices.push_back(
        fmt::format("experts_over_all_ranks ranks={} reason=\"experts are never cut, with or "
                    "without --enable-expert-parallel\"",
                    ranks));
  }
  if (ranks == 1 && options.expert_parallel) {
    notices.push_back("expert_parallel_unused reason=\"one rank holds all experts\"");
  }
  return notices;
}

void add_layout_flags(CLI::App& verb, LayoutOptions& options) {
  const CLI::Range at_least_one(1, comm::kRanksMax);
  verb.add_option("--tensor-parallel-size,--tp", options.layout.tensor_parallel,
                  "ranks that share the tokens of a group and the model's matrices")
      ->check(at_least_one);
  verb.add_option("--data-parallel-size,--dp", options.layout.data_parallel,
                  "groups with requests of their own")
      ->check(at_least_one);
  verb.add_flag("--enable-expert-parallel", options.expert_parallel,
                "spread experts over all ranks; so they are with several ranks anyway");
  verb.add_option("--expert-parallel-size", options.expert_parallel_size,
                  "ranks that share the experts; 0: all, and nothing else is possible")
      ->check(CLI::Range(0, comm::kRanksMax));
  verb.add_option("--num-redundant-experts", options.layout.redundant_experts,
                  "copies of experts in each layer, over all ranks")
      ->check(CLI::Range(0, kRedundantExpertsMax));
  verb.add_flag("--enable-eplb", options.layout.rebalances_experts,
                "give experts other ranks, and copies to those most asked for, as their load asks");
  const CLI::Range steps(1u, kBalanceStepsMax);
  verb.add_option("--eplb-window-size", options.balance.window_steps,
                  "last steps of an interval that count as the load")
      ->check(steps);
  verb.add_option("--eplb-step-interval", options.balance.interval_steps,
                  "steps from one look at the load to the next")
      ->check(steps);
  CLI::Option* nodes = verb.add_option("--nnodes", options.nodes_count,
                                       "processes that share the ranks, on one host")
                           ->check(at_least_one);
  verb.add_option("--node-rank", options.node_rank, "number of this process")
      ->check(CLI::Range(0, comm::kRanksMax))
      ->needs(nodes);
  verb.add_option("--dist-init-addr", options.address,
                  "HOST:PORT where process 0 meets the others");
  verb.add_option("--dist-timeout", options.meet_timeout_s,
                  "seconds until all processes must have come there")
      ->check(CLI::Range(1, 86'400));
  verb.add_option("--collective-late-after", options.late_after_s,
                  "seconds after which a rank that others wait for is logged by name")
      ->check(CLI::Range(0.1, 3600.0))
      ->check(a_number());
  refuse_unless(verb, [&options] { return check_layout_flags(options); });
}

Result<RunningRanks> start_ranks(const ModelFolder& folder, const DeviceOptions& device,
                                 const LayoutOptions& options, const engine::Limits& limits,
                                 std::function<void(const Error&)> on_lost,
                                 const HandoffUse& handoffs) {
  const model::ModelConfig& config = folder.files.config;
  TANDEM_TRY(check_layout(options, config));
  const auto shard = TANDEM_TRY(model::Shard::create(config, options.layout, 0));
  for (const std::string& notice : layout_notices(options, shard)) spdlog::warn("{}", notice);
  const int ranks_count = options.ranks_per_node();
  const int first_rank = options.node_rank * ranks_count;
  // All processes are on this host, so its cores are shared by all ranks.
  DeviceOptions per_rank = device;
  const int sharers = device.threads_count == 0 ? options.nodes_count : 1;
  const int threads = folder.device->threads_count() / sharers;
  per_rank.threads_count = std::max(1, threads / ranks_count);

  engine::RankSet::Options set{.config = config,
                               .layout = options.layout,
                               .limits = limits,
                               .compute = folder.compute,
                               .balance = options.balance,
                               .make_device = [per_rank]() -> Result<std::unique_ptr<Device>> {
                                 return std::unique_ptr<Device>(TANDEM_TRY(make_device(per_rank)));
                               },
                               .make_source = [&folder]() { return open_weights(folder); },
                               .ports = handoffs.ports,
                               .on_lost = std::move(on_lost)};
  const bool is_alone = options.layout.ranks_count() == 1;
  const size_t heap_bytes = is_alone ? 0 : TANDEM_TRY(engine::RankSet::heap_bytes(set));
  TANDEM_TRY(require_memory({.config = config,
                             .compute = folder.compute,
                             .model_length_max = folder.model_length_max,
                             .step = engine::StepMemory::options_of(limits, folder.compute),
                             .threads_count = per_rank.threads_count,
                             .size_flags = SizeFlags::kLengthAndCache,
                             .layout = options.layout,
                             .first_rank = first_rank,
                             .ranks_count = ranks_count,
                             .heap_bytes = heap_bytes,
                             .receives_kv = handoffs.receives_kv}));
  RunningRanks running{.threads_per_rank = per_rank.threads_count};
  if (options.nodes_count > 1) {
    TANDEM_TRY(join({.address = TANDEM_TRY(io::parse_endpoint(options.address)),
                     .ranks_count = options.layout.ranks_count(),
                     .heap_bytes = heap_bytes,
                     .settings = TANDEM_TRY(settings_of(folder, device, options, limits)),
                     .start_timeout = std::chrono::seconds(options.meet_timeout_s),
                     .late_after = options.late_after(),
                     .inseparable_ranks = options.layout.tensor_parallel},
                    first_rank, ranks_count, running.memberships));
  } else if (!is_alone) {
    running.threads = TANDEM_TRY(
        comm::ThreadGroup::create({.ranks_count = ranks_count,
                                   .heap_bytes = heap_bytes,
                                   .late_after = options.late_after(),
                                   .inseparable_ranks = options.layout.tensor_parallel}));
  }
  running.set = TANDEM_TRY(
      engine::RankSet::create(std::move(set), members_of(running, first_rank, ranks_count)));
  return running;
}

}  // namespace tandem::apps
