// tandem bench transfer: how fast slices travel from one process to another, and beside each cell
// what libfabric itself reaches on the same network in the same run.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/bench_verbs.h"
#include "apps/output_file.h"
#include "apps/reshard_side.h"
#include "apps/transfer_side.h"

namespace tandem::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kReshard = "reshard";

struct TransferBenchOptions {
  TransferSide::Options side;
  std::vector<std::string> kinds{"single", "paged", "scatter", "reshard"};
  std::vector<uint64_t> sizes{1024, 4096, 16384, 32768, 65536, 262144, 1048576, 4194304, 33554432};
  uint32_t rounds = 15;
  uint32_t reshard_rounds = 61;
  std::string listen;
  std::string connect;
  std::string json;

  bool reshards() const { return std::ranges::find(kinds, kReshard) != kinds.end(); }
  ReshardSide::Options reshard() const { return {side.network, side.writes_max}; }
};

/// A round takes about this many bytes, but no more slices than are done in a moment.
constexpr uint64_t kRoundBytes = uint64_t{128} << 20;
constexpr uint64_t kSlicesMin = 4;
constexpr uint64_t kSlicesMax = 8192;
constexpr uint64_t kSinglesMax = 300;

struct Cell {
  std::string kind;
  uint64_t bytes = 0;
  double gb_s = 0, bare_gb_s = 0;  ///< of the median round
  double ratio = 0;                ///< within one round; the median
  double us_p50 = 0, us_p99 = 0, bare_us_p50 = 0, bare_us_p99 = 0;
};

double percentile(std::vector<double> values, double share) {
  const auto at = static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(at));
  return values[at];
}

TransferKind kind_of(const std::string& name) {
  if (name == "single") return TransferKind::kSingle;
  return name == "paged" ? TransferKind::kPaged : TransferKind::kScatter;
}

Result<Cell> measure(TransferSide& side, const std::string& kind, uint64_t bytes, uint32_t rounds) {
  TransferRound round{.kind = kind_of(kind),
                      .bytes = bytes,
                      .slices = std::clamp(kRoundBytes / bytes, kSlicesMin, kSlicesMax)};
  TransferRound bare = round;
  bare.kind = TransferKind::kBare;
  const double giga_bytes = static_cast<double>(bytes * round.slices) / 1e9;
  std::vector<double> speeds, bare_speeds, ratios;
  for (uint32_t i = 0; i < rounds + 1; ++i) {
    // The order changes, so that neither has always the warmer caches.
    double seconds = 0, bare_seconds = 0;
    if (i % 2 == 0) bare_seconds = TANDEM_TRY(side.write(bare));
    seconds = TANDEM_TRY(side.write(round));
    if (i % 2 == 1) bare_seconds = TANDEM_TRY(side.write(bare));
    if (i == 0) continue;  // connects and touches memory
    speeds.push_back(giga_bytes / seconds);
    bare_speeds.push_back(giga_bytes / bare_seconds);
    ratios.push_back(bare_seconds / seconds);
  }
  round.slices = bare.slices = std::min(round.slices, kSinglesMax);
  const std::vector<double> bare_us = TANDEM_TRY(side.write_singly(bare));
  const std::vector<double> us = TANDEM_TRY(side.write_singly(round));
  return Cell{.kind = kind,
              .bytes = bytes,
              .gb_s = percentile(speeds, 0.5),
              .bare_gb_s = percentile(bare_speeds, 0.5),
              .ratio = percentile(ratios, 0.5),
              .us_p50 = percentile(us, 0.5),
              .us_p99 = percentile(us, 0.99),
              .bare_us_p50 = percentile(bare_us, 0.5),
              .bare_us_p99 = percentile(bare_us, 0.99)};
}

Json report(const Cell& cell) {
  const double slices_s = cell.gb_s * 1e9 / static_cast<double>(cell.bytes);
  fmt::print("{:<8} {:>9} {:>8.3f} {:>9.0f} {:>10.1f} {:>10.1f} {:>8.3f} {:>10.1f} {:>6.1f} %\n",
             cell.kind, cell.bytes, cell.gb_s, slices_s, cell.us_p50, cell.us_p99, cell.bare_gb_s,
             cell.bare_us_p50, 100 * cell.ratio);
  std::fflush(stdout);
  return {{"kind", cell.kind},
          {"bytes", cell.bytes},
          {"gb_s", cell.gb_s},
          {"ops_s", slices_s},
          {"us_p50", cell.us_p50},
          {"us_p99", cell.us_p99},
          {"bare_gb_s", cell.bare_gb_s},
          {"bare_us_p50", cell.bare_us_p50},
          {"bare_us_p99", cell.bare_us_p99},
          {"ratio", cell.ratio}};
}

/// What a round takes in one way, beside the same bytes between equal shardings.
struct ReshardCell {
  std::string_view onto;
  double gb_s = 0;   ///< of the median round
  double ratio = 0;  ///< within one round; the median
};

Result<std::vector<ReshardCell>> measure_reshard(ReshardSide& side, uint32_t rounds) {
  constexpr std::array ways{Reshard::kEqual, Reshard::kOneRank, Reshard::kDataParallel};
  constexpr std::array<std::string_view, ways.size()> names{"4 equal", "1", "4 data-parallel"};
  constexpr double giga_bytes = static_cast<double>(ReshardShape::kMoveBytes) / 1e9;
  std::array<std::vector<double>, ways.size()> speeds, ratios;
  for (uint32_t i = 0; i < rounds + 1; ++i) {
    std::array<double, ways.size()> seconds{};
    for (size_t j = 0; j < ways.size(); ++j) {
      // The order changes, so that none has always the warmer caches.
      const size_t way = (i + j) % ways.size();
      seconds[way] = TANDEM_TRY(side.write(ways[way]));
    }
    if (i == 0) continue;  // connects and touches memory
    for (size_t way = 0; way < ways.size(); ++way) {
      speeds[way].push_back(giga_bytes / seconds[way]);
      ratios[way].push_back(seconds[0] / seconds[way]);
    }
  }
  std::vector<ReshardCell> cells;
  for (size_t way = 0; way < ways.size(); ++way) {
    cells.push_back({names[way], percentile(speeds[way], 0.5), percentile(ratios[way], 0.5)});
  }
  return cells;
}

Json report(const ReshardCell& cell) {
  fmt::print("{:<8} {:>9} {:>8.3f}   from 4 ranks onto {:<15} {:>6.1f} % of equal\n", kReshard,
             ReshardShape::kSliceBytes, cell.gb_s, cell.onto, 100 * cell.ratio);
  std::fflush(stdout);
  return {{"kind", kReshard},
          {"bytes", ReshardShape::kSliceBytes},
          {"onto", cell.onto},
          {"gb_s", cell.gb_s},
          {"ratio", cell.ratio}};
}

Result<void> run_source(const TransferBenchOptions& options, TransferControl& control) {
  std::optional<OutputFile> file;
  if (!options.json.empty()) file = TANDEM_TRY(OutputFile::create(options.json));
  const auto side = TANDEM_TRY(TransferSide::meet(options.side, control));
  const std::string where = options.connect.empty() ? "this host" : options.connect;
  fmt::print("provider {}, to {}, {} writes under way; bare: fi_writedata in a loop\n\n",
             options.side.network.provider, where, options.side.writes_max);
  fmt::print("{:<8} {:>9} {:>8} {:>9} {:>10} {:>10} {:>8} {:>10} {:>8}\n", "", "bytes", "GB/s",
             "op/s", "p50 us", "p99 us", "bare", "bare p50", "of bare");
  const auto write_line = [&](Json line) {
    line.update({{"provider", options.side.network.provider},
                 {"window", options.side.writes_max},
                 {"to", where},
                 {"version", TANDEM_VERSION}});
    if (file) file->stream() << line.dump() << "\n";
  };
  for (const std::string& kind : options.kinds) {
    if (kind == kReshard) continue;
    for (const uint64_t bytes : options.sizes) {
      write_line(report(TANDEM_TRY(measure(*side, kind, bytes, options.rounds))));
    }
  }
  TANDEM_TRY(side->finish());
  TANDEM_TRY(control.send_value(options.reshards()));
  if (options.reshards()) {
    const auto ranks = TANDEM_TRY(ReshardSide::meet(options.reshard(), control));
    for (const ReshardCell& cell : TANDEM_TRY(measure_reshard(*ranks, options.reshard_rounds))) {
      write_line(report(cell));
    }
    TANDEM_TRY(ranks->finish());
  }
  return file ? file->finish() : Result<void>();
}

Result<void> run_target(const TransferBenchOptions& options, TransferControl& control) {
  const auto side = TANDEM_TRY(TransferSide::meet(options.side, control));
  TANDEM_TRY(side->serve());
  if (!TANDEM_TRY(control.receive_value<bool>())) return {};
  const auto ranks = TANDEM_TRY(ReshardSide::meet(options.reshard(), control));
  return ranks->serve();
}

Result<void> listen(const TransferBenchOptions& options) {
  const io::Endpoint endpoint = TANDEM_TRY(io::parse_endpoint(options.listen));
  auto listener = TANDEM_TRY(io::Listener::listen_tcp(endpoint));
  fmt::print("waiting for `tandem bench transfer --connect` at {}\n", options.listen);
  std::fflush(stdout);
  while (true) {
    auto socket = TANDEM_TRY(listener.accept(io::Deadline::clock::now() + std::chrono::hours(1)));
    if (!socket.has_value()) continue;
    TransferControl control(std::move(*socket));
    return run_target(options, control);
  }
}

Result<void> connect(const TransferBenchOptions& options) {
  const io::Endpoint endpoint = TANDEM_TRY(io::parse_endpoint(options.connect));
  TransferControl control(TANDEM_TRY(
      io::Socket::connect_tcp(endpoint, io::Deadline::clock::now() + std::chrono::seconds(10))));
  return run_source(options, control);
}

/// Both sides on this host: the target is a child, made before this process has another thread.
Result<void> run_pair(const TransferBenchOptions& options) {
  auto [source, target] = TANDEM_TRY(io::Socket::make_pair());
  const pid_t child = ::fork();
  if (child < 0) return make_error(Code::kResourceExhausted, "cannot make a second process");
  if (child == 0) {
    {
      const io::Socket parents = std::move(source);  // its end is seen when the parent is gone
    }
    TransferControl control(std::move(target));
    const Result<void> result = run_target(options, control);
    if (!result.ok()) fmt::print(stderr, "tandem bench: target: {}\n", result.error().what);
    ::_exit(result.ok() ? 0 : 1);
  }
  Result<void> result;
  {
    const io::Socket childs = std::move(target);
    TransferControl control(std::move(source));
    result = run_source(options, control);
  }
  ::waitpid(child, nullptr, 0);
  return result;
}

Result<void> bench_transfer(const TransferBenchOptions& options) {
  const auto fits = [](uint64_t bytes) {
    return bytes >= 1 && bytes <= TransferSide::kRegionBytes;
  };
  if (!std::ranges::all_of(options.sizes, fits)) {
    return make_error(Code::kInvalidArgument, fmt::format("every one of --sizes must be 1 to {}",
                                                          TransferSide::kRegionBytes));
  }
  if (!options.listen.empty() && !options.connect.empty()) {
    return make_error(Code::kInvalidArgument,
                      "one side has --listen and the other --connect, not both");
  }
  if (!options.listen.empty()) return listen(options);
  return options.connect.empty() ? run_pair(options) : connect(options);
}

}  // namespace

Verb add_bench_transfer(CLI::App& bench) {
  auto options = std::make_shared<TransferBenchOptions>();
  CLI::App* verb = bench.add_subcommand(
      "transfer", "writes to another process, as shares of what libfabric does");
  verb->add_option("--provider", options->side.network.provider,
                   "network: shm, tcp, verbs, efa, or a name of libfabric's");
  verb->add_option("--interface", options->side.network.interface,
                   "interface or address of this host to use; none: the first");
  verb->add_option("--kinds", options->kinds, "which to measure")
      ->delimiter(',')
      ->check(CLI::IsMember({"single", "paged", "scatter", "reshard"}));
  verb->add_option("--sizes", options->sizes, "bytes of a slice")->delimiter(',');
  verb->add_option("--window", options->side.writes_max, "writes that may be under way")
      ->check(CLI::Range(1, 256));
  verb->add_option("--rounds", options->rounds,
                   "measurements of a cell and of the bare loop, by turns; the medians count")
      ->check(CLI::Range(1, 1000));
  verb->add_option("--reshard-rounds", options->reshard_rounds,
                   "measurements of every way of kind reshard, by turns; the medians count")
      ->check(CLI::Range(1, 1000));
  verb->add_option("--listen", options->listen, "be the target for another host: address:port");
  verb->add_option("--connect", options->connect, "write to the target that listens there");
  verb->add_option("--json", options->json, "file to write a JSON line per cell to");
  return [options] { return bench_transfer(*options); };
}

}  // namespace tandem::apps
