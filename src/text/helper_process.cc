#include "text/helper_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tandem::text {
namespace {

constexpr const char* kPython = "/usr/bin/python3";

// Runs the first frame as a program, so that no file on disk and no long argument is needed.
constexpr const char* kLoader =
    "import sys; file = sys.stdin.buffer; "
    "exec(compile(file.read(int.from_bytes(file.read(4), 'little')), 'helper', 'exec'))";

std::array<char, 4> frame_header(size_t size) {
  const auto length = static_cast<uint32_t>(size);
  return {static_cast<char>(length), static_cast<char>(length >> 8),
          static_cast<char>(length >> 16), static_cast<char>(length >> 24)};
}

size_t frame_length(const std::array<char, 4>& header) {
  size_t length = 0;
  for (size_t i = 0; i < 4; ++i) length |= size_t{static_cast<unsigned char>(header[i])} << (8 * i);
  return length;
}

// posix_spawn and not fork: it does not copy the page tables of a server that maps a whole model,
// and it is safe while other threads run.
int spawn(int child_socket, int& pid) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, child_socket, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, child_socket, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  // Its own process group, so that Ctrl-C in a terminal reaches the server alone.
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);

  // -I: no environment, no user packages, no current folder. -S: no site module.
  const char* arguments[] = {kPython, "-I", "-S", "-c", kLoader, nullptr};
  const char* environment[] = {"LC_ALL=C.UTF-8", nullptr};
  const int error = posix_spawn(&pid, kPython, &files, &attributes, const_cast<char**>(arguments),
                                const_cast<char**>(environment));
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

}  // namespace

Result<HelperProcess> HelperProcess::start(std::string_view program, Deadline deadline) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return make_error(Code::kUnavailable,
                      std::string("cannot make a socket for a template process: ") +
                          std::strerror(errno) + "; raise the limit of open files (ulimit -n)");
  }
  int pid = -1;
  const int error = spawn(sockets[1], pid);
  close(sockets[1]);
  if (error != 0) {
    close(sockets[0]);
    return make_error(Code::kFailedPrecondition,
                      std::string("cannot start ") + kPython + " for the chat template: " +
                          std::strerror(error) + "; install python3 and python3-jinja2");
  }
  HelperProcess process(pid, sockets[0]);
  TANDEM_TRY(process.send_frame(program, deadline));
  return process;
}

HelperProcess::~HelperProcess() {
  stop();
}

HelperProcess::HelperProcess(HelperProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), socket_(std::exchange(other.socket_, -1)) {}

HelperProcess& HelperProcess::operator=(HelperProcess&& other) noexcept {
  if (this != &other) {
    stop();
    pid_ = std::exchange(other.pid_, -1);
    socket_ = std::exchange(other.socket_, -1);
  }
  return *this;
}

void HelperProcess::stop() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  close(socket_);
  pid_ = -1;
}

Result<std::string> HelperProcess::exchange(std::string_view request, Deadline deadline,
                                            size_t answer_bytes_max) {
  TANDEM_TRY(send_frame(request, deadline));
  std::array<char, 4> header;
  TANDEM_TRY(receive_bytes(header.data(), header.size(), deadline));
  const size_t length = frame_length(header);
  if (length > answer_bytes_max) {
    return make_error(Code::kResourceExhausted, "the template process answers with " +
                                                    std::to_string(length) + " bytes, more than " +
                                                    std::to_string(answer_bytes_max));
  }
  std::string answer(length, '\0');
  TANDEM_TRY(receive_bytes(answer.data(), length, deadline));
  return answer;
}

bool HelperProcess::is_idle() const {
  pollfd waiting{socket_, POLLIN, 0};
  return poll(&waiting, 1, 0) == 0;
}

Result<void> HelperProcess::send_frame(std::string_view data, Deadline deadline) {
  if (data.size() > UINT32_MAX) {
    return make_error(Code::kInvalidArgument, "the conversation is longer than 4 GiB");
  }
  const auto header = frame_header(data.size());
  TANDEM_TRY(send_bytes(header.data(), header.size(), deadline));
  return send_bytes(data.data(), data.size(), deadline);
}

Result<void> HelperProcess::send_bytes(const char* data, size_t size, Deadline deadline) {
  while (size > 0) {
    TANDEM_TRY(wait_for(POLLOUT, deadline));
    const ssize_t sent = send(socket_, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EINTR) continue;
      return ended();
    }
    data += sent;
    size -= static_cast<size_t>(sent);
  }
  return {};
}

Result<void> HelperProcess::receive_bytes(char* data, size_t size, Deadline deadline) {
  while (size > 0) {
    TANDEM_TRY(wait_for(POLLIN, deadline));
    const ssize_t received = recv(socket_, data, size, MSG_DONTWAIT);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (received <= 0) return ended();
    data += received;
    size -= static_cast<size_t>(received);
  }
  return {};
}

Result<void> HelperProcess::wait_for(short events, Deadline deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      return make_error(Code::kDeadlineExceeded, "the template process takes too long");
    }
    pollfd waiting{socket_, events, 0};
    const auto timeout = std::min<int64_t>(left.count(), 60'000);
    const int ready = poll(&waiting, 1, static_cast<int>(timeout));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return ended();
  }
}

Error HelperProcess::ended() const {
  return make_error(Code::kUnavailable,
                    "the template process ended; the next render starts another");
}

}  // namespace tandem::text
