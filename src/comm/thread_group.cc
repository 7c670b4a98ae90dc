#include "comm/thread_group.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "comm/heap_options.h"
#include "io/host.h"

namespace tandem::comm {
namespace {

std::vector<RankPlace> places_here(size_t ranks_count) {
  return std::vector<RankPlace>(ranks_count, {io::host_name(), io::process_id()});
}

}  // namespace

ThreadGroup::Generation::Generation(io::SharedMemory heaps_memory, std::vector<int> members,
                                    std::chrono::milliseconds late_after)
    : memory(std::move(heaps_memory)),
      ranks(std::move(members)),
      health(places_here(ranks.size()), ranks) {
  const auto count = static_cast<int>(ranks.size());
  for (int rank = 0; rank < count; ++rank) {
    heaps.push_back(std::make_unique<SymmetricHeap>(wait_options(rank, count, late_after),
                                                    memory.bytes(), health));
  }
}

int ThreadGroup::Generation::index_of(int rank) const {
  return static_cast<int>(std::ranges::find(ranks, rank) - ranks.begin());
}

Result<std::unique_ptr<ThreadGroup>> ThreadGroup::create(Options options) {
  options.heap_bytes = TANDEM_TRY(mapped_heap_bytes(options.ranks_count, options.heap_bytes));
  std::vector<int> ranks(static_cast<size_t>(options.ranks_count));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto memory = TANDEM_TRY(io::SharedMemory::create(options.heap_bytes * ranks.size()));
  auto first =
      std::make_shared<Generation>(std::move(memory), std::move(ranks), options.late_after);
  return std::unique_ptr<ThreadGroup>(new ThreadGroup(options, std::move(first)));
}

ThreadGroup::ThreadGroup(const Options& options, std::shared_ptr<Generation> first)
    : options_(options),
      roster_(places_here(static_cast<size_t>(options.ranks_count)), options.inseparable_ranks),
      present_(static_cast<size_t>(options.ranks_count), std::move(first)) {}

std::shared_ptr<ThreadGroup::Generation> ThreadGroup::generation(int rank) {
  const std::lock_guard lock(mutex_);
  return present_[static_cast<size_t>(rank)];
}

SymmetricHeap& ThreadGroup::heap(int rank) {
  const auto present = generation(rank);
  return *present->heaps[static_cast<size_t>(present->index_of(rank))];
}

Result<Regrouped> ThreadGroup::regroup(int rank, const std::string& brings) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Generation> before = present_[static_cast<size_t>(rank)];
  come_[rank] = brings;
  while (present_[static_cast<size_t>(rank)] == before) {
    roster_.lose_all(before->health);
    if (roster_.is_gone(rank)) {
      changed_.notify_all();
      return roster_.end_of(rank);
    }
    const std::vector<int> ranks = roster_.survivors();
    const bool all_came =
        std::ranges::all_of(ranks, [&](int other) { return come_.contains(other); });
    if (!all_came) {
      changed_.wait(lock);
      continue;
    }
    // The last to come makes the heaps for all.
    auto memory = TANDEM_TRY(io::SharedMemory::create(options_.heap_bytes * ranks.size()));
    auto next = std::make_shared<Generation>(std::move(memory), ranks, options_.late_after);
    for (const int other : ranks) {
      next->brought.push_back(std::move(come_[other]));
      present_[static_cast<size_t>(other)] = next;
    }
    come_.clear();
    changed_.notify_all();
  }
  const Generation& now = *present_[static_cast<size_t>(rank)];
  return Regrouped{.heap = now.heaps[static_cast<size_t>(now.index_of(rank))].get(),
                   .ranks = now.ranks,
                   .brought = now.brought,
                   .losses = roster_.losses()};
}

void ThreadGroup::leave(int rank) {
  const std::lock_guard lock(mutex_);
  Generation& present = *present_[static_cast<size_t>(rank)];
  present.health.departed(present.index_of(rank));
  roster_.lose(rank);
  changed_.notify_all();
}

void ThreadGroup::fail(int rank, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  Generation& present = *present_[static_cast<size_t>(rank)];
  present.health.died(present.index_of(rank), reason);
  roster_.lose(rank);
  changed_.notify_all();
}

}  // namespace tandem::comm
