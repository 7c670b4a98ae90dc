#include "io/process.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

namespace tandem::io {
namespace {

std::optional<uint64_t> started_ticks(int process_id) {
  std::string line;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", process_id)), line);
  // Behind the name, which may hold anything: the state is field 3, the start field 22.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  uint64_t ticks = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), ticks);
  if (error != std::errc() || !fields) return std::nullopt;
  return ticks;
}

}  // namespace

bool process_exists(int process_id) {
  // EPERM: it is there, and of another user.
  return ::kill(process_id, 0) == 0 || errno == EPERM;
}

Result<ProcessName> own_process_name() {
  ProcessName own{.id = ::getpid()};
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), own.boot);
  struct stat entry{};
  if (::stat("/proc/self/ns/pid", &entry) == 0) own.id_namespace = entry.st_ino;
  own.started_ticks = started_ticks(own.id).value_or(0);
  if (!own.boot.empty() && own.id_namespace != 0 && own.started_ticks != 0) return own;
  return make_error(Code::kUnavailable, "/proc does not say which process this is; is it mounted?");
}

Result<ProcessWatch> ProcessWatch::open(const ProcessName& process) {
  const ProcessName own = TANDEM_TRY(own_process_name());
  const Error not_here =
      make_error(Code::kNotFound, fmt::format("process {} is not of this host", process.id));
  if (process.boot != own.boot || process.id_namespace != own.id_namespace) return not_here;
  ProcessWatch watch = TANDEM_TRY(open(process.id));
  // Asked behind it, so that both are of one life.
  if (started_ticks(process.id) != process.started_ticks) return not_here;
  return watch;
}

Result<ProcessWatch> ProcessWatch::open(int process_id) {
  FileDescriptor descriptor(static_cast<int>(::syscall(SYS_pidfd_open, process_id, 0)));
  if (descriptor.get() >= 0) return ProcessWatch(std::move(descriptor));
  return make_error(
      errno == ESRCH ? Code::kNotFound : Code::kUnavailable,
      fmt::format("process {} cannot be watched: {}", process_id, std::strerror(errno)));
}

bool ProcessWatch::has_ended() const {
  pollfd entry{.fd = descriptor_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, 0) == 1;
}

}  // namespace tandem::io
