#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "base/check.h"

namespace tandem::io {

/// For tests: a fresh folder, removed with everything in it at the end. Any failure to make or
/// fill it is a check, since a test without its files has nothing to say. Inline, so that the
/// library of the program holds none of it.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::error_code ignored;
    std::string name = (std::filesystem::temp_directory_path(ignored) / "tandem-XXXXXX").string();
    TANDEM_CHECK(::mkdtemp(name.data()) != nullptr, "cannot make a folder for temporary files");
    path_ = name;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

  /// Writes a file of the folder and returns its path.
  std::filesystem::path write(std::string_view name, std::string_view content) const {
    std::filesystem::path path = path_ / name;
    std::ofstream file(path, std::ios::binary);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    file.close();
    TANDEM_CHECK(file.good(), "cannot write a temporary file");
    return path;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace tandem::io
