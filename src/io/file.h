#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace tandem::io {

/// The whole content of a small regular file (configs, tokenizers), at most `bytes_max` of it: a
/// larger file is an error and is not read. Weights are mapped instead (mapped_file.h).
Result<std::string> read_file(const std::filesystem::path& path, size_t bytes_max);

/// Whether something is at the path, after following links. False also when that cannot be told.
bool path_exists(const std::filesystem::path& path);

}  // namespace tandem::io
