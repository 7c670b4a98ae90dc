#include "transfer/engine_driver.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <utility>

namespace tandem::transfer {
namespace {

using std::chrono::steady_clock;

// What a sleep on descriptors lasts at most; nothing depends on it, it only bounds a lost wake-up.
constexpr Duration kDescriptorSleepMax = std::chrono::milliseconds(250);

}  // namespace

Result<std::unique_ptr<EngineDriver>> EngineDriver::start(std::unique_ptr<TransferEngine> engine,
                                                          DriverOptions options) {
  if (options.sleep_min <= Duration::zero() || options.sleep_max < options.sleep_min ||
      options.commands_max == 0) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("{}: sleep_min must be above 0 and at most sleep_max, and there "
                                  "must be room for a command",
                                  options.thread_name));
  }
  auto [wake, woken] = TANDEM_TRY(io::Socket::make_pair());
  return std::unique_ptr<EngineDriver>(
      new EngineDriver(std::move(engine), std::move(options), std::move(wake), std::move(woken)));
}

EngineDriver::EngineDriver(std::unique_ptr<TransferEngine> engine, DriverOptions options,
                           io::Socket wake, io::Socket woken)
    : options_(std::move(options)),
      engine_(std::move(engine)),
      wake_(std::move(wake)),
      woken_(std::move(woken)),
      next_sleep_(options_.sleep_min) {
  const auto rails = engine_->rails();
  if (std::ranges::all_of(rails, [](const auto& rail) { return rail->wait_descriptor() >= 0; })) {
    for (const auto& rail : rails) descriptors_.push_back(rail->wait_descriptor());
    descriptors_.push_back(woken_.descriptor());
  }
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), options_.thread_name.c_str());
}

EngineDriver::~EngineDriver() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    if (is_asleep_) (void)wake_.send(std::array{std::byte{1}}, steady_clock::now()).ok();
  }
  has_news_.notify_one();
  thread_.join();
}

Result<void> EngineDriver::submit(Command command) {
  {
    const std::lock_guard lock(mutex_);
    if (commands_.size() >= options_.commands_max) {
      return make_error(Code::kResourceExhausted,
                        fmt::format("{} commands wait for thread {}; try again later",
                                    commands_.size(), options_.thread_name));
    }
    commands_.push_back(std::move(command));
    // A full socket needs no further byte: it wakes the thread as it is.
    if (is_asleep_) (void)wake_.send(std::array{std::byte{1}}, steady_clock::now()).ok();
  }
  has_news_.notify_one();
  return {};
}

void EngineDriver::run() {
  uint32_t looks = 0;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_) return;
      running_.swap(commands_);
    }
    const bool has_run = run_commands();
    if (engine_->progress() || has_run) {
      looks = 0;
      next_sleep_ = options_.sleep_min;
    } else if (++looks < options_.looks_max) {
      std::this_thread::yield();
    } else {
      sleep();
    }
  }
}

bool EngineDriver::run_commands() {
  for (const Command& command : running_) command(*engine_);
  const bool has_run = !running_.empty();
  running_.clear();
  return has_run;
}

Duration EngineDriver::sleep_bound() const {
  const Duration bound = must_poll() ? next_sleep_ : kDescriptorSleepMax;
  const auto deadline = engine_->next_deadline();
  if (!deadline.has_value()) return bound;
  return std::clamp(*deadline - steady_clock::now(), Duration::zero(), bound);
}

void EngineDriver::sleep() {
  const Duration bound = sleep_bound();
  next_sleep_ = std::min(next_sleep_ * 2, options_.sleep_max);
  std::unique_lock lock(mutex_);
  if (is_stopping_ || !commands_.empty()) return;
  if (must_poll()) {
    has_news_.wait_for(lock, bound, [&] { return is_stopping_ || !commands_.empty(); });
    return;
  }
  is_asleep_ = true;
  lock.unlock();
  const auto rails = engine_->rails();
  if (std::ranges::all_of(rails, [](const auto& rail) { return rail->may_sleep(); })) {
    io::wait_readable(descriptors_, std::chrono::ceil<std::chrono::milliseconds>(bound));
  } else {
    std::this_thread::yield();
  }
  std::array<std::byte, 16> ignored;
  (void)woken_.receive_some(ignored).ok();
  lock.lock();
  is_asleep_ = false;
}

}  // namespace tandem::transfer
