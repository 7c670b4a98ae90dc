#pragma once

#include <filesystem>
#include <fstream>
#include <ostream>

#include "base/result.h"

namespace tandem::apps {

/// A file for what a verb worked out. Opened before the work, so that a wrong path costs nothing;
/// what was there before is gone from then on.
class OutputFile {
 public:
  /// kInvalidArgument when the file cannot be written.
  static Result<OutputFile> create(const std::filesystem::path& path);

  std::ostream& stream() { return stream_; }
  /// Closes the file. An error when any byte did not reach it; call once, after the last write.
  Result<void> finish();

 private:
  explicit OutputFile(const std::filesystem::path& path);
  Error unwritable() const;

  std::filesystem::path path_;
  std::ofstream stream_;
};

}  // namespace tandem::apps
