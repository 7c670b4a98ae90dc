// tandem bench engine: prefill and decode speed of the real engine loop, and the share of what
// this machine can do, measured beside every cell.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/bench_loop.h"
#include "apps/bench_verbs.h"
#include "apps/engine_work.h"
#include "apps/memory_plan.h"
#include "apps/output_file.h"
#include "cpu/machine_probe.h"
#include "device/op_times.h"

namespace tandem::apps {
namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions {
  std::string model = "models/bench-moe";
  DeviceOptions device;
  std::vector<uint32_t> prompts{128, 512, 2048};
  std::vector<uint32_t> batches{1, 4, 16};
  std::vector<uint32_t> contexts{128, 2048};
  uint32_t step_tokens_max = 512;
  uint32_t decode_steps = 8;
  uint32_t rounds = 5;
  bool ops = false;
  std::string json;
};

constexpr size_t kProbeBytes = size_t{1} << 30;  // four times the largest cache we have met

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Generated tokens of a decode cell's sequence before the clock starts: the first generates while
/// the others still compute their prompts.
uint32_t head_start(const BenchOptions& options, uint32_t batch, uint32_t context) {
  return batch * (context / options.step_tokens_max + 2);
}

uint32_t decode_length(const BenchOptions& options, uint32_t batch, uint32_t context) {
  return context + head_start(options, batch, context) + options.decode_steps * options.rounds;
}

BenchLoop::Options prefill_loop(const BenchOptions& options, uint32_t prompt) {
  return {.tokens_each = prompt + 1, .step_tokens_max = options.step_tokens_max};
}

BenchLoop::Options decode_loop(const BenchOptions& options, uint32_t batch, uint32_t context) {
  return {.sequences_max = batch,
          .tokens_each = decode_length(options, batch, context),
          .step_tokens_max = options.step_tokens_max};
}

class EngineBench {
 public:
  EngineBench(const BenchOptions& options, const BenchModel& model)
      : options_(options),
        model_(model),
        work_{model.files.config, model.dtype},
        probe_(kProbeBytes),
        stream_(model.device->threads_count(), model.device->path()) {}

  /// Whole prompts, one at a time, in chunks of the step limit.
  Result<Json> prefill(uint32_t prompt) {
    auto loop = TANDEM_TRY(BenchLoop::create(model_, prefill_loop(options_, prompt)));
    op_times_.clear();
    std::vector<double> seconds, peaks;
    for (uint32_t round = 0; round < options_.rounds; ++round) {
      peaks.push_back(cpu::matrix_flops_per_second(stream_.team(), model_.dtype) / 1e9);
      loop->submit(prompt, 1);
      loop->stream().set_op_times(&op_times_);
      seconds.push_back(TANDEM_TRY(loop->run_tokens(1)));
    }
    return report({.kind = "prefill",
                   .tokens = prompt,
                   .tokens_per_run = prompt,
                   .seconds = median(seconds),
                   .work = work_.prefill_flops(prompt) / 1e9,
                   .unit = "gflop/s",
                   .peak = median(peaks),
                   .runs = options_.rounds});
  }

  /// Steps that give one token to each of `batch` sequences.
  Result<Json> decode(uint32_t batch, uint32_t context) {
    const uint32_t steps = options_.decode_steps * options_.rounds;
    const BenchLoop::Options sequences = decode_loop(options_, batch, context);
    auto loop = TANDEM_TRY(BenchLoop::create(model_, sequences));
    for (uint32_t i = 0; i < batch; ++i) loop->submit(context, sequences.tokens_each - context);
    TANDEM_TRY(loop->run_prompts());
    loop->stream().set_op_times(&op_times_);
    op_times_.clear();
    std::vector<double> seconds, peaks;
    for (uint32_t round = 0; round < options_.rounds; ++round) {
      peaks.push_back(probe_.bytes_per_second(stream_.team()) / 1e9);
      const double round_seconds =
          TANDEM_TRY(loop->run_tokens(uint64_t{batch} * options_.decode_steps));
      seconds.push_back(round_seconds / options_.decode_steps);
    }
    return report({.kind = "decode",
                   .batch = batch,
                   .tokens = context,
                   .tokens_per_run = batch,
                   .seconds = median(seconds),
                   .work = work_.decode_bytes(batch, context + steps / 2.0) / 1e9,
                   .unit = "gb/s",
                   .peak = median(peaks),
                   .runs = steps});
  }

 private:
  struct Cell {
    const char* kind;
    uint32_t batch = 1;
    uint32_t tokens;          ///< of the prompt, or already in the context
    uint32_t tokens_per_run;  ///< computed by one run: a prompt, or a step
    double seconds;           ///< of one run
    double work;              ///< of one run, giga
    const char* unit;
    double peak;  ///< of the machine, in `unit`
    uint32_t runs;
  };

  /// Prints the row of a cell and, when asked for, what its ops took of a run.
  Json report(const Cell& c) const {
    const double reached = c.work / c.seconds;
    fmt::print("{:<8} {:>6} {:>8} {:>10.2f} {:>10.1f} {:>9.1f} {:>9.1f} {:>8} {:>7.1f} %\n", c.kind,
               c.batch, c.tokens, c.seconds * 1e3, c.tokens_per_run / c.seconds, reached, c.peak,
               c.unit, 100 * reached / c.peak);
    Json ops;
    for (const OpTimes::Row& row : op_times_.rows()) {
      const double ms = std::chrono::duration<double, std::milli>(row.time).count() / c.runs;
      if (options_.ops) fmt::print("{:>24} {:>10.3f} ms\n", row.op, ms);
      ops[std::string(row.op)] = ms;
    }
    std::fflush(stdout);
    return {{"kind", c.kind},
            {"batch", c.batch},
            {"tokens", c.tokens},
            {"ms", c.seconds * 1e3},
            {"tokens_per_s", c.tokens_per_run / c.seconds},
            {"unit", c.unit},
            {"reached", reached},
            {"machine", c.peak},
            {"share", reached / c.peak},
            {"ops_ms", ops}};
  }

  const BenchOptions& options_;
  const BenchModel& model_;
  EngineWork work_;
  cpu::ReadProbe probe_;
  cpu::CpuStream stream_;  // of the probes
  OpTimes op_times_;
};

/// What a flag may say. With it no product of two flags reaches 2^64, and with the limit of a cell
/// none that is computed later reaches 2^32.
constexpr uint32_t kFlagMax = 1u << 20;
constexpr uint64_t kCellTokensMax = uint64_t{1} << 30;

Result<void> check(const BenchOptions& options) {
  const auto in_range = [](uint32_t value) { return value >= 1 && value <= kFlagMax; };
  const bool lists = std::ranges::all_of(options.prompts, in_range) &&
                     std::ranges::all_of(options.batches, in_range) &&
                     std::ranges::all_of(options.contexts, in_range);
  if (!lists || !in_range(options.step_tokens_max) || !in_range(options.decode_steps) ||
      !in_range(options.rounds)) {
    return make_error(
        Code::kInvalidArgument,
        fmt::format("every count of tokens, sequences, steps and rounds must be 1 to {}",
                    kFlagMax));
  }
  for (const uint64_t context : options.contexts) {
    for (const uint64_t batch : options.batches) {
      const uint64_t each = context + batch * (context / options.step_tokens_max + 2) +
                            uint64_t{options.decode_steps} * options.rounds;
      if (each <= kCellTokensMax / batch) continue;
      return make_error(
          Code::kInvalidArgument,
          fmt::format("--batches {} with --contexts {}, {} steps and {} rounds needs "
                      "{} tokens for each sequence; a cell holds {} at most",
                      batch, context, options.decode_steps, options.rounds, each, kCellTokensMax));
    }
  }
  return {};
}

/// What each cell runs.
std::vector<BenchLoop::Options> loops_of(const BenchOptions& options) {
  std::vector<BenchLoop::Options> loops;
  for (uint32_t prompt : options.prompts) loops.push_back(prefill_loop(options, prompt));
  for (uint32_t context : options.contexts) {
    for (uint32_t batch : options.batches) loops.push_back(decode_loop(options, batch, context));
  }
  return loops;
}

/// Refuses what will not fit, cell by cell, then loads.
Result<BenchModel> load_model(const BenchOptions& options) {
  BenchModel::Options load{.folder = options.model, .device = options.device};
  const DType compute = options.device.compute();
  const std::vector<BenchLoop::Options> loops = loops_of(options);
  for (const BenchLoop::Options& loop : loops) {
    load.positions_max = std::max(load.positions_max, int64_t{loop.tokens_each});
  }
  const model::ModelFiles files = TANDEM_TRY(model::ModelFiles::open(options.model));
  const auto device = TANDEM_TRY(make_device(load.device));
  for (const BenchLoop::Options& loop : loops) {
    const engine::Limits limits = BenchLoop::limits_of(files.config, loop);
    TANDEM_TRY(require_memory({.config = files.config,
                               .compute = compute,
                               .model_length_max = static_cast<uint32_t>(load.positions_max),
                               .step = engine::StepMemory::options_of(limits, compute),
                               .threads_count = device->threads_count(),
                               .size_flags = SizeFlags::kCells,
                               .verb_bytes = kProbeBytes}));
  }
  return BenchModel::load(load);
}

Result<void> bench_engine(const BenchOptions& options) {
  TANDEM_TRY(check(options));
  const BenchModel model = TANDEM_TRY(load_model(options));
  std::optional<OutputFile> file;
  if (!options.json.empty()) file = TANDEM_TRY(OutputFile::create(options.json));
  fmt::print("{}{}, {}, {}\n\n", options.model, model.random_weights ? " (random weights)" : "",
             options.device.dtype, model.device->describe());
  fmt::print("{:<8} {:>6} {:>8} {:>10} {:>10} {:>9} {:>9} {:>8} {:>9}\n", "", "batch", "tokens",
             "ms", "tokens/s", "reached", "machine", "unit", "share");
  EngineBench bench(options, model);
  Json cells = Json::array();
  for (uint32_t prompt : options.prompts) cells.push_back(TANDEM_TRY(bench.prefill(prompt)));
  for (uint32_t context : options.contexts) {
    for (uint32_t batch : options.batches) {
      cells.push_back(TANDEM_TRY(bench.decode(batch, context)));
    }
  }
  if (!file) return {};
  const Json json{{"version", TANDEM_VERSION},
                  {"model", options.model},
                  {"random_weights", model.random_weights},
                  {"dtype", options.device.dtype},
                  {"device", model.device->describe()},
                  {"step_tokens_max", options.step_tokens_max},
                  {"cells", cells}};
  file->stream() << json.dump(1) << "\n";
  return file->finish();
}

}  // namespace

Verb add_bench_engine(CLI::App& bench) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* engine = bench.add_subcommand(
      "engine", "prefill and decode speed, as shares of what the machine can do");
  engine->add_option("model,--model", options->model,
                     "model folder; without weights it runs with random ones");
  add_device_flags(*engine, options->device);
  engine->add_option("--prompts", options->prompts, "prompt lengths of prefill cells")
      ->delimiter(',');
  engine->add_option("--batches", options->batches, "sequences of decode cells")->delimiter(',');
  engine->add_option("--contexts", options->contexts, "context lengths of decode cells")
      ->delimiter(',');
  engine->add_option("--max-num-batched-tokens", options->step_tokens_max, "tokens of one step");
  engine->add_option("--decode-steps", options->decode_steps, "steps of one decode round");
  engine->add_option("--rounds", options->rounds,
                     "measurements of a cell and of the machine; the medians count");
  engine->add_flag("--ops", options->ops, "print what each op takes of a cell");
  engine->add_option("--json", options->json, "file to write the cells to");
  return [options] { return bench_engine(*options); };
}

}  // namespace tandem::apps
