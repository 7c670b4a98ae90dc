#include "transfer/executor_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem::transfer {

ExecutorDriver::ExecutorDriver(std::unique_ptr<TransferEngine> engine, io::Executor& executor,
                               ExecutorDriverOptions options)
    : options_(options),
      engine_(std::move(engine)),
      executor_(executor),
      next_sleep_(options.sleep_min) {
  TANDEM_CHECK(options.sleep_min > Duration::zero(), "time passes between two looks");
  TANDEM_CHECK(options.sleep_max >= options.sleep_min, "sleeps become longer");
  executor_.wake(*this);
}

ExecutorDriver::~ExecutorDriver() {
  executor_.forget(*this);
}

Result<void> ExecutorDriver::submit(Command command) {
  {
    const std::lock_guard lock(mutex_);
    if (commands_.size() >= options_.commands_max) {
      return make_error(
          Code::kResourceExhausted,
          fmt::format("{} commands wait for a transfer engine; try again later", commands_.size()));
    }
    commands_.push_back(std::move(command));
  }
  executor_.wake(*this);
  return {};
}

void ExecutorDriver::run() {
  {
    const std::lock_guard lock(mutex_);
    running_.swap(commands_);
  }
  const bool has_run = !running_.empty();
  for (const Command& command : running_) command(*engine_);
  running_.clear();
  if (engine_->progress() || has_run) {
    next_sleep_ = options_.sleep_min;
    executor_.wake(*this);
    return;
  }
  TimePoint next = executor_.now() + next_sleep_;
  next_sleep_ = std::min(next_sleep_ * 2, options_.sleep_max);
  if (const auto deadline = engine_->next_deadline()) next = std::min(next, *deadline);
  executor_.wake_at(*this, next);
}

}  // namespace tandem::transfer
