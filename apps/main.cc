#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>

#include "apps/verbs.h"
#include "transfer/libfabric/prepare.h"

namespace {

/// Standard streams that the parent closed. Else the next file or socket would get their numbers,
/// and what is printed would go into it, and what it holds be read as the user's words.
void open_standard_streams(int, char**, char**) {
  for (int stream : {0, 1, 2}) {
    // open() takes the lowest free number, which is `stream`: those below it are open by now.
    if (fcntl(stream, F_GETFD) == -1) static_cast<void>(open("/dev/null", O_RDWR));
  }
}

/// Before main() is too late: libraries open files when they are loaded (gRPC's an eventfd).
[[gnu::section(".preinit_array"),
  gnu::used]] void (*const kBeforeLibraries)(int, char**, char**) = open_standard_streams;

/// Exit codes; docs/flags.md promises them.
constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

}  // namespace

int main(int argc, char** argv) {
  using namespace tandem;
  transfer::prepare_libfabric();
  // Standard output is for results.
  spdlog::default_logger()->sinks() = {std::make_shared<spdlog::sinks::stderr_color_sink_mt>()};
  CLI::App app{"Tandem: serve Qwen mixture-of-experts models"};
  app.set_version_flag("--version", TANDEM_VERSION);
  app.require_subcommand(0, 1);  // with 1, CLI11 does not say which unknown verb it met
  app.option_defaults()->always_capture_default();  // shown by --help
  const std::pair<std::string, apps::Verb> verbs[] = {
      {"serve", apps::add_serve(app)},       {"worker", apps::add_worker(app)},
      {"generate", apps::add_generate(app)}, {"chat", apps::add_chat(app)},
      {"inspect", apps::add_inspect(app)},   {"eval", apps::add_eval(app)},
      {"logits", apps::add_logits(app)},     {"bench", apps::add_bench(app)},
      {"version", apps::add_version(app)},
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // also how --help and --version end, with 0
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  for (const auto& [name, run] : verbs) {
    if (!app.got_subcommand(name)) continue;
    const Result<void> result = run();
    if (result.ok()) {
      if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
      fmt::print(stderr, "tandem {}: standard output was not written in full; check the disk\n",
                 name);
      return kFailed;
    }
    fmt::print(stderr, "tandem {}: {}\n", name, result.error().what);
    return kFailed;
  }
  fmt::print(stderr, "{}", app.help());
  return kWrongUsage;
}
