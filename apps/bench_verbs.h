#pragma once

#include "apps/verbs.h"

namespace tandem::apps {

// What `bench` can measure, each a verb below it.
Verb add_bench_comm(CLI::App& bench);      // bench_comm.cc
Verb add_bench_engine(CLI::App& bench);    // bench_engine.cc
Verb add_bench_transfer(CLI::App& bench);  // bench_transfer.cc

}  // namespace tandem::apps
