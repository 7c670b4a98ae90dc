#include "cluster/delivery/rank_commands.h"

#include <utility>

namespace tandem::cluster {

RankCommands::Command RankCommands::wrap(Command command) {
  return [this, command = std::move(command)](transfer::TransferEngine& engine) {
    command(engine);
    if (wants_room_.exchange(false)) box_.post([this] { give_waiting(); });
  };
}

Result<void> RankCommands::try_submit(Command command) {
  if (!waiting_.empty()) {
    return make_error(Code::kResourceExhausted,
                      "other commands wait for room in the rank's queue; try again later");
  }
  return driver_.submit(wrap(std::move(command)));
}

void RankCommands::submit(Command command) {
  waiting_.push_back(wrap(std::move(command)));
  give_waiting();
}

void RankCommands::give_waiting() {
  while (!waiting_.empty()) {
    if (!driver_.submit(waiting_.front()).ok()) {
      wants_room_ = true;
      // The queue may have run empty in between, and nobody saw the wish. If it is full now, one of
      // those in it will.
      if (!driver_.submit(waiting_.front()).ok()) return;
    }
    waiting_.pop_front();
  }
}

}  // namespace tandem::cluster
