#pragma once

#include <atomic>
#include <deque>
#include <utility>

#include "base/result.h"
#include "io/post_box.h"
#include "transfer/driver.h"

namespace tandem::cluster {

/// An owner's way to the driver of one rank, whose queue is bounded. All commands of the driver go
/// through here. Owner's thread, but for submit_more(). Outlives the driver's thread.
class RankCommands {
 public:
  using Command = transfer::Driver::Command;
  RankCommands(transfer::Driver& driver, io::PostBox& box) : driver_(driver), box_(box) {}

  /// kResourceExhausted when there is no room.
  Result<void> try_submit(Command command);
  /// For what must not be lost: it waits here while there is no room, and what comes later behind
  /// it.
  void submit(Command command);
  /// Of a command that runs: what is left of its work.
  Result<void> submit_more(Command command) { return driver_.submit(wrap(std::move(command))); }

 private:
  Command wrap(Command command);
  void give_waiting();

  transfer::Driver& driver_;
  io::PostBox& box_;
  std::deque<Command> waiting_;
  std::atomic<bool> wants_room_ = false;
};

}  // namespace tandem::cluster
