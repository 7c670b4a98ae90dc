#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "io/executor.h"
#include "transfer/driver.h"

namespace tandem::transfer {

struct ExecutorDriverOptions {
  uint32_t commands_max = 1024;  ///< submitted and not yet run
  /// While nothing moves its rails are looked at, first after this time, then after twice as long
  /// each time up to the maximum. So an arrival is seen at most that much later.
  Duration sleep_min = std::chrono::microseconds(20);
  Duration sleep_max = std::chrono::milliseconds(2);
};

/// Moves an engine as a task of an executor: for tests and the simulator, whose time is virtual.
/// Owns the engine, whose clock must be the executor's. Made and destroyed on the owner's thread.
class ExecutorDriver final : public Driver, private io::Task {
 public:
  ExecutorDriver(std::unique_ptr<TransferEngine> engine, io::Executor& executor,
                 ExecutorDriverOptions options);
  /// Commands and callbacks that are due are dropped.
  ~ExecutorDriver() override;

  Result<void> submit(Command command) override;

 private:
  void run() override;

  const ExecutorDriverOptions options_;
  const std::unique_ptr<TransferEngine> engine_;
  io::Executor& executor_;
  std::vector<Command> running_;
  Duration next_sleep_;
  std::mutex mutex_;
  std::vector<Command> commands_;  // guarded by mutex_
};

}  // namespace tandem::transfer
