#include "apps/output_file.h"

#include <fmt/format.h>

namespace tandem::apps {

OutputFile::OutputFile(const std::filesystem::path& path)
    : path_(path), stream_(path, std::ios::binary) {}

Result<OutputFile> OutputFile::create(const std::filesystem::path& path) {
  OutputFile file(path);
  if (!file.stream_) return file.unwritable();
  return file;
}

Result<void> OutputFile::finish() {
  stream_.close();
  if (!stream_) return unwritable();
  return {};
}

Error OutputFile::unwritable() const {
  return make_error(
      Code::kInvalidArgument,
      fmt::format("{} could not be written; check the path and the disk", path_.string()));
}

}  // namespace tandem::apps
