// tandem version
#include <fmt/format.h>

#include "apps/verbs.h"

namespace tandem::apps {

Verb add_version(CLI::App& app) {
  app.add_subcommand("version", "print the version of this program");
  return []() -> Result<void> {
    fmt::print("{}\n", TANDEM_VERSION);
    return {};
  };
}

}  // namespace tandem::apps
