#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/open_file.h"

namespace tandem::apps {

/// How a process ended.
struct ProcessEnding {
  bool by_signal = false;
  int number = 0;  ///< of the signal, else the exit code
  /// "exit code 2", "signal 9 (Killed)"
  std::string text() const;
};

/// A process that this one has started. Owns it: what still runs at the end of the object is killed
/// and waited for, so that no zombie stays. One thread at a time.
class ChildProcess {
 public:
  struct Options {
    std::string program;                 ///< path
    std::vector<std::string> arguments;  ///< without the program's name
  };
  /// Starts it with this process's environment, an empty standard input, and one pipe for standard
  /// output and error. It inherits no other file and no signal disposition, and is in a process
  /// group of its own, so that Ctrl-C in a terminal reaches its parent alone.
  static Result<ChildProcess> start(const Options& options);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  int process_id() const { return process_id_; }
  /// Readable once it has ended.
  int ending_descriptor() const { return watch_.get(); }
  /// Readable when it has written something; -1 once all that could write has closed its end.
  int output_descriptor() const { return has_output_ ? output_.get() : -1; }
  /// Sends a signal; nothing happens once it has ended.
  void signal(int number);
  /// What it has written since the last call, as far as it is there. Never waits.
  std::string read_output();
  /// None while it runs. Never waits.
  std::optional<ProcessEnding> ending();

 private:
  ChildProcess(int process_id, io::FileDescriptor watch, io::FileDescriptor output)
      : process_id_(process_id), watch_(std::move(watch)), output_(std::move(output)) {}

  int process_id_;  // 0: moved from
  io::FileDescriptor watch_;
  io::FileDescriptor output_;
  bool has_output_ = true;
  std::optional<ProcessEnding> ending_;
};

/// For a child's main thread: from now on this process is killed when the thread that started it
/// ends, whatever that died of. kFailedPrecondition when its parent is not, or no longer, the
/// process `parent_process_id`.
Result<void> die_with_parent(int parent_process_id);

}  // namespace tandem::apps
