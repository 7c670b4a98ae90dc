// tandem bench: what this machine can do, and what this program makes of it.
#include "apps/bench_verbs.h"

namespace tandem::apps {

Verb add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "measure this machine and this program on it");
  bench->require_subcommand(1);
  const Verb engine = add_bench_engine(*bench);
  const Verb comm = add_bench_comm(*bench);
  const Verb transfer = add_bench_transfer(*bench);
  return [=] {
    if (bench->got_subcommand("comm")) return comm();
    return bench->got_subcommand("transfer") ? transfer() : engine();
  };
}

}  // namespace tandem::apps
