#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "io/socket.h"
#include "transfer/driver.h"

namespace tandem::transfer {

struct DriverOptions {
  std::string thread_name = "transfer";  ///< at most 15 bytes
  uint32_t commands_max = 1024;          ///< submitted and not yet run
  /// How often an idle thread looks before it sleeps. It yields between looks: where cores are few,
  /// the one that it waits for may need this one.
  uint32_t looks_max = 200;
  /// A thread whose rails must be polled sleeps between looks, first this long, then twice as long
  /// each time up to the maximum. So an arrival at an idle rank is seen at most that much later.
  Duration sleep_min = std::chrono::microseconds(20);
  Duration sleep_max = std::chrono::milliseconds(2);
};

/// Gives an engine its thread. Owns both. Everything of the engine, callbacks included, happens on
/// that thread; others hand in commands. submit() never waits, neither for the thread nor for room,
/// so no lock or full queue can be waited for in a circle; a command may submit more.
class EngineDriver final : public Driver {
 public:
  static Result<std::unique_ptr<EngineDriver>> start(std::unique_ptr<TransferEngine> engine,
                                                     DriverOptions options);
  /// Ends the thread and the engine; commands and callbacks that are due are dropped.
  ~EngineDriver() override;

  Result<void> submit(Command command) override;

 private:
  EngineDriver(std::unique_ptr<TransferEngine> engine, DriverOptions options, io::Socket wake,
               io::Socket woken);
  void run();
  bool run_commands();
  void sleep();
  bool must_poll() const { return descriptors_.empty(); }
  Duration sleep_bound() const;

  const DriverOptions options_;
  const std::unique_ptr<TransferEngine> engine_;  // of the thread
  io::Socket wake_;                               // written to with mutex_ held
  io::Socket woken_;                              // of the thread
  std::vector<int> descriptors_;                  // of all rails and woken_; none: they are polled
  std::vector<Command> running_;                  // of the thread
  Duration next_sleep_;                           // of the thread

  std::mutex mutex_;
  std::condition_variable has_news_;
  std::vector<Command> commands_;  // guarded by mutex_
  bool is_stopping_ = false;       // guarded by mutex_
  bool is_asleep_ = false;         // guarded by mutex_; on the descriptors
  std::thread thread_;
};

}  // namespace tandem::transfer
