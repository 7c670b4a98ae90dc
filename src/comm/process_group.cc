#include "comm/process_group.h"

#include <fmt/format.h>

#include <utility>

#include "comm/heap_options.h"

namespace tandem::comm {

Result<std::unique_ptr<ProcessGroup>> ProcessGroup::join(RendezvousOptions options) {
  options.heap_bytes = TANDEM_TRY(mapped_heap_bytes(options.ranks_count, options.heap_bytes));
  if (options.rank < 0 || options.rank >= options.ranks_count) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("rank {} of {}: use 0 to {}", options.rank, options.ranks_count,
                                  options.ranks_count - 1));
  }
  Meeting meeting = TANDEM_TRY(meet(options));
  auto group = std::unique_ptr<ProcessGroup>(new ProcessGroup(options, meeting));
  group->watch_ =
      TANDEM_TRY(Watch::start(options.rank, std::move(meeting.connections), group->health_));
  return group;
}

ProcessGroup::ProcessGroup(const RendezvousOptions& options, Meeting& meeting)
    : memory_(std::move(meeting.memory)),
      health_(std::move(meeting.places)),
      heap_(wait_options(options.rank, options.ranks_count, options.late_after), memory_.bytes(),
            health_) {}

}  // namespace tandem::comm
