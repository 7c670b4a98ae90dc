#include "apps/terminal.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

namespace tandem::apps {
namespace {

constexpr size_t kLineBytesMax = size_t{1} << 20;

// What the signal handler can reach.
volatile std::sig_atomic_t g_interrupts = -1;

void on_interrupt(int) {
  const int error = errno;
  const uint64_t one = 1;
  // A full counter already says what one more would say.
  if (::write(static_cast<int>(g_interrupts), &one, sizeof one) < 0) errno = error;
}

Error failed(const char* call) {
  return make_error(Code::kInternal, fmt::format("{}: {}", call, std::strerror(errno)));
}

}  // namespace

Result<Terminal> Terminal::create() {
  const int interrupts = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (interrupts < 0) return failed("eventfd");
  g_interrupts = interrupts;
  std::signal(SIGINT, on_interrupt);
  return Terminal(interrupts);
}

Terminal::Terminal(int interrupts)
    : interrupts_(interrupts), interactive_(::isatty(STDIN_FILENO) == 1) {}

Terminal::Terminal(Terminal&& other) noexcept
    : interrupts_(std::exchange(other.interrupts_, -1)),
      interactive_(other.interactive_),
      ended_(other.ended_),
      unread_(std::move(other.unread_)) {}

Terminal::~Terminal() {
  if (interrupts_ < 0) return;
  std::signal(SIGINT, SIG_DFL);
  ::close(interrupts_);
}

bool Terminal::take_interrupt() {
  uint64_t count = 0;
  return ::read(interrupts_, &count, sizeof count) == sizeof count;
}

Result<std::optional<std::string>> Terminal::read_line(const char* prompt) {
  if (interactive_) {
    std::fputs(prompt, stdout);
    std::fflush(stdout);
  }
  size_t end = 0;
  while ((end = unread_.find('\n')) == std::string::npos) {
    if (unread_.size() > kLineBytesMax) {
      return make_error(Code::kInvalidArgument,
                        fmt::format("a line has more than {} bytes", kLineBytesMax));
    }
    if (ended_ || !TANDEM_TRY(read_more())) {
      if (unread_.empty()) return std::optional<std::string>();
      return std::optional(std::exchange(unread_, {}));  // a last line without an end
    }
  }
  std::string line = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  return std::optional(std::move(line));
}

/// False at the end of input, or on Ctrl-C, which also drops a half line.
Result<bool> Terminal::read_more() {
  for (;;) {
    pollfd wanted[] = {{STDIN_FILENO, POLLIN, 0}, {interrupts_, POLLIN, 0}};
    if (::poll(wanted, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return failed("poll");
    }
    if (take_interrupt()) {
      unread_.clear();
      return false;
    }
    if (wanted[0].revents == 0) continue;
    char block[4096];
    const ssize_t count = ::read(STDIN_FILENO, block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("read");
    ended_ = count == 0;
    unread_.append(block, static_cast<size_t>(count));
    return !ended_;
  }
}

}  // namespace tandem::apps
