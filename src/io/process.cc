#include "io/process.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tandem::io {

bool process_exists(int process_id) {
  // EPERM: it is there, and of another user.
  return ::kill(process_id, 0) == 0 || errno == EPERM;
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
