#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <utility>

#include "base/result.h"

namespace tandem::apps {

/// Flags that do not suit each other are as wrong as one that is misspelt: the check runs when the
/// verb's flags are read, and its error ends the program with the exit code of wrong usage. Once
/// per verb, since CLI11 keeps one callback.
inline void refuse_unless(CLI::App& verb, std::function<Result<void>()> check) {
  verb.parse_complete_callback([check = std::move(check)] {
    const Result<void> result = check();
    if (!result.ok()) throw CLI::ValidationError(result.error().what);
  });
}

}  // namespace tandem::apps
