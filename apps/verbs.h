#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/result.h"

namespace tandem::apps {

/// A verb adds its subcommand; when that was chosen, the function it returns does the work.
using Verb = std::function<Result<void>()>;

Verb add_serve(CLI::App& app);     // serve.cc
Verb add_worker(CLI::App& app);    // worker.cc
Verb add_eval(CLI::App& app);      // eval.cc
Verb add_logits(CLI::App& app);    // logits.cc
Verb add_generate(CLI::App& app);  // generate.cc
Verb add_chat(CLI::App& app);      // chat.cc
Verb add_inspect(CLI::App& app);   // inspect.cc
Verb add_bench(CLI::App& app);     // bench.cc
Verb add_version(CLI::App& app);   // version.cc

}  // namespace tandem::apps
