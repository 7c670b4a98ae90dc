#include "comm/process_group.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "base/list_text.h"
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
  Present& present = *group->present_;
  present.watch =
      TANDEM_TRY(Watch::start(options.rank, std::move(meeting.connections), present.health));
  return group;
}

ProcessGroup::ProcessGroup(const RendezvousOptions& options, Meeting& meeting)
    : late_after_(options.late_after),
      reunion_{.key = meeting.key, .rank = options.rank, .heap_bytes = options.heap_bytes},
      roster_(meeting.places, options.inseparable_ranks),
      listener_(std::move(meeting.survivors)),
      present_(std::make_unique<Present>(std::move(meeting.places))) {
  present_->memory.emplace(std::move(meeting.memory));
  present_->heap.emplace(wait_options(options.rank, options.ranks_count, late_after_),
                         present_->memory->bytes(), present_->health);
}

Result<Regrouped> ProcessGroup::regroup(const std::string& brings) {
  roster_.lose_all(present_->health);
  // Given back first: the new heaps are about as large.
  present_->heap.reset();
  present_->memory.reset();
  reunion_.brings = brings;
  auto met = meet_again(reunion_, *listener_, roster_);
  Result<Regrouped> entered = met.ok() ? enter(std::move(*met)) : Result<Regrouped>(met.error());
  if (!entered.ok()) fail(entered.error().what);
  return entered;
}

Result<Regrouped> ProcessGroup::enter(Reunion reunion) {
  const auto ranks_count = static_cast<int>(reunion.ranks.size());
  const auto rank =
      static_cast<int>(std::ranges::find(reunion.ranks, reunion_.rank) - reunion.ranks.begin());
  TANDEM_CHECK(rank < ranks_count, "this rank is among those that go on");
  std::vector<RankPlace> places;
  for (const int number : reunion.ranks) places.push_back(roster_.place(number));
  auto present = std::make_unique<Present>(std::move(places), reunion.ranks);
  present->memory.emplace(std::move(*reunion.memory));
  present->heap.emplace(wait_options(rank, ranks_count, late_after_), present->memory->bytes(),
                        present->health);
  present->watch = TANDEM_TRY(Watch::start(rank, std::move(reunion.connections), present->health));
  present_ = std::move(present);
  Regrouped regrouped{.heap = &*present_->heap,
                      .ranks = std::move(reunion.ranks),
                      .brought = std::move(reunion.brought),
                      .losses = roster_.losses()};
  const auto lost = regrouped.losses | std::views::transform(&LostRank::name);
  spdlog::warn("comm_regrouped rank={} ranks_left={} lost=\"{}\"", reunion_.rank, ranks_count,
               list_text(lost));
  return regrouped;
}

void ProcessGroup::fail(const std::string& reason) {
  listener_.reset();
  if (present_->watch) present_->watch->fail(reason);
}

void ProcessGroup::leave() {
  listener_.reset();
  present_->watch.reset();
}

}  // namespace tandem::comm
