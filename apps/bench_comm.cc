// tandem bench comm: how long each collective takes between threads of this process, what it puts,
// and its share of the copies that it cannot avoid.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/bench_verbs.h"
#include "apps/comm_loop.h"
#include "apps/device_flags.h"
#include "apps/output_file.h"
#include "comm/heap_options.h"

namespace tandem::apps {
namespace {

using Json = nlohmann::ordered_json;

struct CommOptions {
  std::vector<std::string> collectives;
  std::vector<int> ranks{2, 4};
  std::vector<int64_t> tokens{1, 16, 64, 128};
  std::vector<int64_t> hidden{4096};
  std::vector<int64_t> k{8};
  std::vector<std::string> dtypes{"f32", "bf16"};
  int32_t experts = 128;
  uint32_t rounds = 15;
  std::string json;
};

const char* name_of(DType dtype) {
  return dtype == DType::kF32 ? "f32" : "bf16";
}

/// The sizes at which a collective is measured: only what it depends on varies.
std::vector<CommSize> sizes_of(const Collective& collective, const CommOptions& options) {
  const auto varied = [](const auto& all, bool varies) {
    return varies ? std::span(all) : std::span(all).first(1);
  };
  std::vector<CommSize> sizes;
  for (const int ranks : options.ranks) {
    for (const int64_t tokens : varied(options.tokens, collective.has_rows)) {
      for (const int64_t hidden : varied(options.hidden, collective.has_rows)) {
        for (const int64_t k : varied(options.k, collective.has_experts)) {
          for (const std::string& dtype : varied(options.dtypes, collective.has_experts)) {
            sizes.push_back({.ranks = ranks,
                             .tokens = tokens,
                             .hidden = hidden,
                             .k = k,
                             .experts = options.experts,
                             .dtype = dtype == "f32" ? DType::kF32 : DType::kBF16});
          }
        }
      }
    }
  }
  return sizes;
}

Json report(const Collective& collective, const CommSize& size, const CommTimes& times) {
  const auto number = [](bool applies, int64_t value) {
    return applies ? fmt::to_string(value) : std::string("-");
  };
  fmt::print("{:<20} {:>5} {:>6} {:>6} {:>3} {:>5} {:>11} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f}",
             collective.name, size.ranks, number(collective.has_rows, size.tokens),
             number(collective.has_rows, size.hidden), number(collective.has_experts, size.k),
             collective.has_experts ? name_of(size.dtype) : "-", times.bytes_put, times.us_p50,
             times.us_p99, times.us, times.floor_us);
  if (times.over_floor > 0) {
    fmt::print(" {:>6.2f}x {:>6.1f} %\n", times.over_floor, 100 / times.over_floor);
  } else {
    fmt::print(" {:>7} {:>8}\n", "-", "-");
  }
  std::fflush(stdout);
  Json line{{"collective", collective.name}, {"ranks", size.ranks}};
  if (collective.has_rows) line.update({{"tokens", size.tokens}, {"hidden", size.hidden}});
  if (collective.has_experts) {
    line.update({{"k", size.k}, {"experts", size.experts}, {"dtype", name_of(size.dtype)}});
  }
  line.update({{"bytes_put", times.bytes_put},
               {"us_p50", times.us_p50},
               {"us_p99", times.us_p99},
               {"us", times.us}});
  if (times.over_floor > 0) {
    line.update({{"floor_us", times.floor_us},
                 {"over_floor", times.over_floor},
                 {"share", 1 / times.over_floor}});
  }
  return line;
}

bool is_wanted(const Collective& collective, const CommOptions& options) {
  return options.collectives.empty() ||
         std::ranges::find(options.collectives, collective.name) != options.collectives.end();
}

/// What a flag may say. With it, and with the limit of a rank's rows, no product overflows.
constexpr int64_t kFlagMax = 1 << 20;
constexpr int64_t kRankFloatsMax = int64_t{1} << 28;

Result<void> check(const CommOptions& options) {
  const auto in_range = [](int64_t value) { return value >= 1 && value <= kFlagMax; };
  const bool are_in_range =
      std::ranges::all_of(options.tokens, in_range) &&
      std::ranges::all_of(options.hidden, in_range) && in_range(options.experts) &&
      in_range(options.rounds) &&
      std::ranges::all_of(options.k, [&](int64_t v) { return v >= 1 && v <= options.experts; });
  if (!are_in_range) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("every count of tokens, columns, experts and rounds must be 1 to "
                                  "{}, and --top-k at most --experts",
                                  kFlagMax));
  }
  const int64_t floats = std::ranges::max(options.tokens) * std::ranges::max(options.hidden);
  if (floats <= kRankFloatsMax / std::ranges::max(options.k)) return {};
  return make_error(
      Code::kInvalidArgument,
      fmt::format("the largest --tokens x --hidden x --top-k must be at most {}", kRankFloatsMax));
}

Result<void> bench_comm(const CommOptions& options) {
  TANDEM_TRY(check(options));
  std::optional<OutputFile> file;
  if (!options.json.empty()) file = TANDEM_TRY(OutputFile::create(options.json));
  const std::string device = TANDEM_TRY(make_device(DeviceOptions()))->describe();
  fmt::print("ranks are threads of one process on {}\n\n", device);
  fmt::print("{:<20} {:>5} {:>6} {:>6} {:>3} {:>5} {:>11} {:>9} {:>9} {:>9} {:>9} {:>7} {:>8}\n",
             "", "ranks", "tokens", "hidden", "k", "dtype", "bytes put", "p50 us", "p99 us", "us",
             "floor us", "over", "share");
  for (const Collective& collective : collectives()) {
    if (!is_wanted(collective, options)) continue;
    for (const CommSize& size : sizes_of(collective, options)) {
      const CommTimes times = TANDEM_TRY(time_collective(collective, size, options.rounds));
      Json line = report(collective, size, times);
      line.update({{"device", device}, {"version", TANDEM_VERSION}});
      if (file) file->stream() << line.dump() << "\n";
    }
  }
  return file ? file->finish() : Result<void>();
}

}  // namespace

Verb add_bench_comm(CLI::App& bench) {
  auto options = std::make_shared<CommOptions>();
  CLI::App* verb =
      bench.add_subcommand("comm", "collectives, as shares of the copies they cannot avoid");
  std::vector<std::string> names;
  for (const Collective& collective : collectives()) names.emplace_back(collective.name);
  verb->add_option("--collectives", options->collectives, "which to measure; none: all")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  verb->add_option("--ranks", options->ranks, "threads that take part")
      ->delimiter(',')
      ->check(CLI::Range(1, comm::kRanksMax));
  verb->add_option("--tokens", options->tokens, "rows of each rank")->delimiter(',');
  verb->add_option("--hidden", options->hidden, "columns of a row")->delimiter(',');
  verb->add_option("--top-k", options->k, "experts of each token")->delimiter(',');
  verb->add_option("--dtypes", options->dtypes, "how experts' tokens and results travel")
      ->delimiter(',')
      ->check(CLI::IsMember({"f32", "bf16"}));
  verb->add_option("--experts", options->experts, "of the layer, shared by the ranks");
  verb->add_option("--rounds", options->rounds,
                   "measurements of a cell and of the machine, by turns; the medians count");
  verb->add_option("--json", options->json, "file to write a JSON line per cell to");
  return [options] { return bench_comm(*options); };
}

}  // namespace tandem::apps
