#include "io/file.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "io/open_file.h"

namespace tandem::io {

Result<std::string> read_file(const std::filesystem::path& path, size_t bytes_max) {
  const OpenFile file = TANDEM_TRY(open_file(path));
  const auto too_large = [&] {
    return make_error(Code::kResourceExhausted, path.string() + " is larger than the limit of " +
                                                    std::to_string(bytes_max) + " bytes");
  };
  if (file.bytes > bytes_max) return too_large();

  // The size is a hint only: files of /proc say 0, and a file may grow while it is read. So one
  // byte more than expected is asked for, until a read returns nothing.
  std::string content(file.bytes + 1, '\0');
  size_t filled = 0;
  while (true) {
    const ssize_t n =
        ::read(file.descriptor.get(), content.data() + filled, content.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("read", path, errno);
    if (n == 0) break;
    filled += static_cast<size_t>(n);
    if (filled > bytes_max) return too_large();
    if (filled == content.size()) content.resize(2 * content.size());
  }
  content.resize(filled);
  return content;
}

bool path_exists(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace tandem::io
