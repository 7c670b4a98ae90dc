#include "apps/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tandem::apps {
namespace {

/// The pipe's descriptors are closed by exec, but for the copies that become the streams.
int spawn(const ChildProcess::Options& options, int output, int& process_id) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

  std::vector<char*> arguments{const_cast<char*>(options.program.c_str())};
  for (const std::string& argument : options.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  const int error = posix_spawn(&process_id, options.program.c_str(), &files, &attributes,
                                arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

Error cannot_start(const ChildProcess::Options& options, int error) {
  return make_error(Code::kUnavailable,
                    fmt::format("cannot start {}: {}", options.program, std::strerror(error)));
}

}  // namespace

std::string ProcessEnding::text() const {
  if (!by_signal) return fmt::format("exit code {}", number);
  return fmt::format("signal {} ({})", number, strsignal(number));
}

Result<ChildProcess> ChildProcess::start(const Options& options) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return cannot_start(options, errno);
  io::FileDescriptor output(ends[0]);
  const io::FileDescriptor input(ends[1]);
  if (fcntl(output.get(), F_SETFL, O_NONBLOCK) != 0) return cannot_start(options, errno);
  int process_id = 0;
  if (const int error = spawn(options, input.get(), process_id); error != 0) {
    return cannot_start(options, error);
  }
  // Nobody has waited for it yet, so its number is still its own.
  io::FileDescriptor watch(static_cast<int>(syscall(SYS_pidfd_open, process_id, 0)));
  const int error = errno;
  ChildProcess child(process_id, std::move(watch), std::move(output));
  if (child.ending_descriptor() < 0) return cannot_start(options, error);
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : process_id_(std::exchange(other.process_id_, 0)),
      watch_(std::move(other.watch_)),
      output_(std::move(other.output_)),
      has_output_(other.has_output_),
      ending_(other.ending_) {}

ChildProcess::~ChildProcess() {
  if (process_id_ == 0 || ending_) return;
  kill(process_id_, SIGKILL);
  while (waitpid(process_id_, nullptr, 0) < 0 && errno == EINTR) continue;
}

void ChildProcess::signal(int number) {
  if (!ending_) kill(process_id_, number);  // not waited for, so the number is still its own
}

std::string ChildProcess::read_output() {
  std::string text;
  char block[4096];
  while (true) {
    const ssize_t count = read(output_.get(), block, sizeof block);
    if (count > 0) {
      text.append(block, static_cast<size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      if (count == 0) has_output_ = false;
      return text;
    }
  }
}

std::optional<ProcessEnding> ChildProcess::ending() {
  if (ending_) return ending_;
  int status = 0;
  if (waitpid(process_id_, &status, WNOHANG) != process_id_) return std::nullopt;
  ending_ = WIFSIGNALED(status) ? ProcessEnding{.by_signal = true, .number = WTERMSIG(status)}
                                : ProcessEnding{.by_signal = false, .number = WEXITSTATUS(status)};
  return ending_;
}

Result<void> die_with_parent(int parent_process_id) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have died before that; whoever adopted this process is another.
  if (getppid() == parent_process_id) return {};
  return make_error(Code::kFailedPrecondition,
                    fmt::format("the parent is process {} and not {}, which may have died",
                                getppid(), parent_process_id));
}

}  // namespace tandem::apps
