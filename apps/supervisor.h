#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "apps/child_process.h"
#include "base/result.h"
#include "io/open_file.h"

namespace tandem::apps {

/// Keeps processes running, from a thread "supervisor" of its own: starts one again that has ended,
/// later each time that it ends soon again, and prints what they write with their names in front.
///
/// It gives up when a child ends with the exit code of a wrong command line, or too often; then it
/// says so once, starts nothing more, and leaves the others to stop().
class Supervisor {
 public:
  using Milliseconds = std::chrono::milliseconds;
  struct Child {
    std::string name;
    ChildProcess::Options process;
  };
  struct Options {
    std::vector<Child> children;  ///< in the order in which they are told to end
    int ends_max = 5;             ///< of one child within `window`: so many are too often
    Milliseconds window{60'000};
    Milliseconds pause_first{200};  ///< before a child is started again; doubled each time,
    Milliseconds pause_max{10'000};
    /// On its thread, once: which child cannot be kept running, how it ended and what it wrote
    /// last.
    std::function<void(const Error&)> on_given_up = [](const Error&) {};
    /// On its thread: a line of a child, "NAME: text", without its end.
    std::function<void(std::string_view line)> print;
  };
  /// Starts all children. An Error is that of the first that cannot be started; the others are
  /// killed.
  static Result<std::unique_ptr<Supervisor>> start(Options options);
  /// stop() without patience.
  ~Supervisor();

  /// Tells one child after the other to end (SIGTERM), waits for it for up to `patience`, then
  /// kills it. Returns when none is left. May be called again with less patience, also while a call
  /// of another thread waits.
  void stop(Milliseconds patience);

  struct Status {
    std::string name;
    int process_id = 0;  ///< 0: it does not run now
    uint32_t restarts = 0;
  };
  std::vector<Status> status() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Kept;
  explicit Supervisor(Options options);
  void run(std::promise<Result<void>> started);
  Result<void> start_all();
  void keep_all();
  void look(Kept& kept);
  void print(Kept& kept, bool is_last);
  void on_ended(Kept& kept, const ProcessEnding& ending);
  void start_again(Kept& kept);
  void give_up(const Kept& kept, const std::string& ending);
  void end_all();
  void end(Kept& kept);
  void wait(std::optional<Clock::time_point> until);
  std::optional<Clock::time_point> next_start() const;
  std::optional<Milliseconds> patience() const;
  void publish();

  const Options options_;
  const io::FileDescriptor bell_;  // an eventfd that wakes the thread
  std::list<Kept> kept_;           // the thread's
  bool has_given_up_ = false;      // the thread's

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Milliseconds> patience_;  // guarded by mutex_: set by stop()
  bool has_ended_ = false;                // guarded by mutex_: no child is left
  std::vector<Status> status_;            // guarded by mutex_
  std::thread thread_;
};

}  // namespace tandem::apps
