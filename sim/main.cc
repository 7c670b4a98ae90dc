// tandem_sim SEED [--seeds N] [--trace]: whole clusters in virtual time, one per seed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "sim/world.h"

namespace {

std::atomic<uint64_t> current_seed{0};

void say_how_to_repeat(uint64_t seed) {
  std::fprintf(stderr, "again: ./x sim %llu --trace\n", static_cast<unsigned long long>(seed));
}

/// A check that fails ends the process; the seed must be known even so.
void on_abort(int signal) {
  say_how_to_repeat(current_seed);
  std::_Exit(128 + signal);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Clusters in virtual time, with faults; one per seed.");
  uint64_t seed = 1;
  uint64_t seeds = 1;
  bool trace = false;
  app.add_option("SEED", seed, "of the first cluster");
  app.add_option("--seeds", seeds, "how many, one after another (default 1)");
  app.add_flag("--trace", trace, "print what happens");
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // what led to an abort is not lost
  std::signal(SIGABRT, on_abort);
  std::signal(SIGSEGV, on_abort);
  for (uint64_t i = 0; i < seeds; ++i) {
    current_seed = seed + i;
    tandem::sim::World world(seed + i, trace);
    const auto finding = world.run();
    if (!finding) continue;
    std::fflush(stdout);
    std::fprintf(stderr, "seed %llu: %s\n", static_cast<unsigned long long>(seed + i),
                 finding->c_str());
    say_how_to_repeat(seed + i);
    return EXIT_FAILURE;
  }
  std::puts(fmt::format("{} seeds from {}: all is well", seeds, seed).c_str());
  return EXIT_SUCCESS;
}
