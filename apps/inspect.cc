// tandem inspect MODEL: config, tensors and memory of a model, without loading it.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "apps/checkpoint.h"
#include "apps/inspect_report.h"
#include "apps/run_engine.h"
#include "apps/verbs.h"

namespace tandem::apps {
namespace {

struct InspectOptions {
  LoadOptions load;
  EngineOptions engine;
  bool tensors = false;
  bool json = false;
};

Result<void> inspect(const InspectOptions& options) {
  const model::ModelFiles files = TANDEM_TRY(model::ModelFiles::open(options.load.model));
  const uint32_t length = TANDEM_TRY(model_length_of(options.load, files.config));
  const engine::Limits limits = TANDEM_TRY(limits_of(options.engine, files.config, length, 0));
  const auto device = TANDEM_TRY(make_device(options.load.device));
  const DType compute = options.load.device.compute();
  const MemoryDemand demand{.config = files.config,
                            .compute = compute,
                            .model_length_max = length,
                            .step = engine::StepMemory::options_of(limits, compute),
                            .threads_count = device->threads_count(),
                            .size_flags = SizeFlags::kLengthAndCache};
  const Checkpoint checkpoint = TANDEM_TRY(Checkpoint::open(files));
  const InspectReport report{.files = files,
                             .checkpoint = checkpoint,
                             .demand = demand,
                             .plan = plan_memory(demand, cpu::read_host_memory()),
                             .sequences_max = limits.sequences_max,
                             .lists_tensors = options.tensors};
  const std::string text = options.json ? report.json() : report.text();
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (checkpoint.mismatch) return *checkpoint.mismatch;
  if (report.plan.fits()) return {};
  return make_error(
      Code::kResourceExhausted,
      fmt::format("{} is needed and {} is available. {}", bytes_text(report.plan.needed_bytes()),
                  bytes_text(report.plan.host.available_bytes()), memory_fix(demand, report.plan)));
}

}  // namespace

Verb add_inspect(CLI::App& app) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* verb =
      app.add_subcommand("inspect", "config, tensors and memory of a model, without loading it");
  add_load_flags(*verb, options->load);
  verb->add_flag("--tensors", options->tensors, "list every tensor");
  verb->add_flag("--json", options->json, "print JSON; bytes are plain numbers");
  add_engine_flags(*verb, options->engine);
  return [options] { return inspect(*options); };
}

}  // namespace tandem::apps
