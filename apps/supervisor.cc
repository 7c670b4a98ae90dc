#include "apps/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <utility>

namespace tandem::apps {
namespace {

/// What a program of ours, and a shell, says of a command line that it does not understand: the
/// same line will not do better.
constexpr int kWrongUsage = 2;

/// Longer lines are printed in parts.
constexpr size_t kLineBytesMax = 64 << 10;

}  // namespace

/// A child with what happened to it.
struct Supervisor::Kept {
  const Child& child;
  std::optional<ChildProcess> process{};  // while it runs
  std::string line{};                     // written, and not ended yet
  std::string last_line{};
  std::deque<Clock::time_point> ends{};         // within the window
  std::optional<Clock::time_point> start_at{};  // again
  uint32_t restarts = 0;
};

Supervisor::Supervisor(Options options)
    : options_(std::move(options)), bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (const Child& child : options_.children) kept_.push_back({.child = child});
}

Result<std::unique_ptr<Supervisor>> Supervisor::start(Options options) {
  std::unique_ptr<Supervisor> supervisor(new Supervisor(std::move(options)));
  std::promise<Result<void>> promise;
  auto started = promise.get_future();
  // Also the first start of a child: it may die with the thread that started it.
  supervisor->thread_ = std::thread(&Supervisor::run, supervisor.get(), std::move(promise));
  pthread_setname_np(supervisor->thread_.native_handle(), "supervisor");
  TANDEM_TRY(started.get());
  return supervisor;
}

Supervisor::~Supervisor() {
  stop(Milliseconds(0));
  thread_.join();
}

void Supervisor::stop(Milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (!patience_ || patience < *patience_) patience_ = patience;
  const uint64_t one = 1;
  static_cast<void>(write(bell_.get(), &one, sizeof one));
  changed_.wait(lock, [this] { return has_ended_; });
}

std::vector<Supervisor::Status> Supervisor::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

std::optional<Supervisor::Milliseconds> Supervisor::patience() const {
  const std::lock_guard lock(mutex_);
  return patience_;
}

void Supervisor::publish() {
  std::vector<Status> status;
  for (const Kept& kept : kept_) {
    status.push_back(
        {kept.child.name, kept.process ? kept.process->process_id() : 0, kept.restarts});
  }
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
}

void Supervisor::run(std::promise<Result<void>> started) {
  const Result<void> result = start_all();
  publish();
  started.set_value(result);
  if (result.ok()) {
    keep_all();
    end_all();
  }
  kept_.clear();
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
  changed_.notify_all();
}

Result<void> Supervisor::start_all() {
  for (Kept& kept : kept_) {
    kept.process.emplace(TANDEM_TRY(ChildProcess::start(kept.child.process)));
  }
  return {};
}

void Supervisor::keep_all() {
  while (!patience()) {
    wait(next_start());
    for (Kept& kept : kept_) {
      look(kept);
      if (kept.start_at && *kept.start_at <= Clock::now()) start_again(kept);
    }
    publish();
  }
}

std::optional<Supervisor::Clock::time_point> Supervisor::next_start() const {
  std::optional<Clock::time_point> next;
  for (const Kept& kept : kept_) {
    if (kept.start_at && (!next || *kept.start_at < *next)) next = kept.start_at;
  }
  return next;
}

/// Until a child writes or ends, or the bell rings, or `until`.
void Supervisor::wait(std::optional<Clock::time_point> until) {
  std::vector<pollfd> entries{{.fd = bell_.get(), .events = POLLIN, .revents = 0}};
  for (const Kept& kept : kept_) {
    if (!kept.process) continue;
    entries.push_back({.fd = kept.process->ending_descriptor(), .events = POLLIN, .revents = 0});
    entries.push_back({.fd = kept.process->output_descriptor(), .events = POLLIN, .revents = 0});
  }
  int timeout_ms = -1;
  if (until) {
    const auto left = std::chrono::ceil<Milliseconds>(*until - Clock::now());
    timeout_ms = static_cast<int>(std::max(left, Milliseconds(0)).count());
  }
  poll(entries.data(), entries.size(), timeout_ms);
  uint64_t rings = 0;
  static_cast<void>(read(bell_.get(), &rings, sizeof rings));
}

/// Takes up what a child has done.
void Supervisor::look(Kept& kept) {
  if (!kept.process) return;
  const std::optional<ProcessEnding> ending = kept.process->ending();
  print(kept, ending.has_value());
  if (!ending) return;
  kept.process.reset();
  on_ended(kept, *ending);
}

void Supervisor::print(Kept& kept, bool is_last) {
  const auto print_line = [&](std::string_view text) {
    kept.last_line = text;
    options_.print(fmt::format("{}: {}", kept.child.name, text));
  };
  kept.line += kept.process->read_output();
  size_t first = 0;
  for (size_t end; (end = kept.line.find('\n', first)) != std::string::npos; first = end + 1) {
    print_line(std::string_view(kept.line).substr(first, end - first));
  }
  kept.line.erase(0, first);
  const bool is_cut = kept.line.size() > kLineBytesMax;
  if (!is_cut && !(is_last && !kept.line.empty())) return;
  print_line(kept.line);
  kept.line.clear();
}

void Supervisor::on_ended(Kept& kept, const ProcessEnding& ending) {
  if (patience()) return;
  const Clock::time_point now = Clock::now();
  kept.ends.push_back(now);
  while (kept.ends.front() + options_.window < now) kept.ends.pop_front();
  const std::string text = fmt::format("{} ended with {}", kept.child.name, ending.text());
  options_.print(text);
  if (!ending.by_signal && ending.number == kWrongUsage) return give_up(kept, text);
  const auto ends = static_cast<int>(kept.ends.size());
  if (ends >= options_.ends_max) {
    return give_up(
        kept, fmt::format("{}, {} times within {} s", text, ends, options_.window.count() / 1000));
  }
  Milliseconds pause = options_.pause_first;
  for (int i = 1; i < ends && pause < options_.pause_max; ++i) pause *= 2;
  if (!has_given_up_) kept.start_at = now + std::min(pause, options_.pause_max);
}

void Supervisor::start_again(Kept& kept) {
  kept.start_at.reset();
  ++kept.restarts;
  auto started = ChildProcess::start(kept.child.process);
  if (started.ok()) {
    kept.process.emplace(std::move(*started));
  } else {
    give_up(kept, fmt::format("{}: {}", kept.child.name, started.error().what));
  }
}

void Supervisor::give_up(const Kept& kept, const std::string& ending) {
  for (Kept& other : kept_) other.start_at.reset();
  if (std::exchange(has_given_up_, true)) return;
  const std::string last =
      kept.last_line.empty() ? "" : fmt::format("; its last line: {}", kept.last_line);
  options_.on_given_up(make_error(Code::kUnavailable, ending + last));
}

void Supervisor::end_all() {
  for (Kept& kept : kept_) kept.start_at.reset();
  for (Kept& kept : kept_) end(kept);
}

/// The others may go on writing meanwhile, and end.
void Supervisor::end(Kept& kept) {
  if (!kept.process) return;
  kept.process->signal(SIGTERM);
  const Clock::time_point told = Clock::now();
  bool is_killed = false;
  while (kept.process) {
    const Clock::time_point deadline = told + *patience();
    if (!is_killed && deadline <= Clock::now()) {
      kept.process->signal(SIGKILL);
      is_killed = true;
    }
    wait(is_killed ? std::nullopt : std::optional(deadline));
    for (Kept& any : kept_) look(any);
    publish();
  }
}

}  // namespace tandem::apps
