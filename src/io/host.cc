#include "io/host.h"

#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "io/file.h"

namespace tandem::io {

std::string host_name() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "unknown";
  return name;
}

int process_id() {
  return ::getpid();
}

size_t memory_available_bytes() {
  const auto text = read_file("/proc/meminfo", 1 << 16);
  if (!text.ok()) return 0;
  const size_t at = text->find("MemAvailable:");
  if (at == std::string::npos) return 0;
  return std::strtoull(text->c_str() + at + std::strlen("MemAvailable:"), nullptr, 10) * 1024;
}

Result<void> fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t filled = ::getrandom(bytes.data(), bytes.size(), 0);
    if (filled < 0 && errno == EINTR) continue;
    if (filled < 0) {
      return make_error(Code::kUnavailable,
                        std::string("cannot read random bytes: ") + std::strerror(errno));
    }
    bytes = bytes.subspan(static_cast<size_t>(filled));
  }
  return {};
}

Result<uint64_t> random_number() {
  uint64_t number = 0;
  TANDEM_TRY(fill_random(std::as_writable_bytes(std::span(&number, 1))));
  return number;
}

}  // namespace tandem::io
