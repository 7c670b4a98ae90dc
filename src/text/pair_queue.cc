#include "text/pair_queue.h"

#include <utility>

namespace tandem::text {
namespace {

// From about here on a heap's 8 bytes for each pair do not fit into a core's cache (2 MiB).
constexpr uint32_t kLongPiece = 1u << 18;
constexpr uint64_t kAllRanks = uint64_t{1} << 32;

}  // namespace

void PairQueue::reset(uint32_t symbols_count) {
  heap_.clear();
  list_ranks_begin_ = symbols_count < kLongPiece ? kAllRanks : 0;
  if (list_ranks_.empty() && open_list_.empty()) return;
  lists_.clear();
  list_ranks_.clear();
  last_list_ = nullptr;
  open_list_.clear();
  open_next_ = 0;
}

void PairQueue::push_to_list(Pair pair) {
  if (last_list_ == nullptr || last_rank_ != pair.rank) {
    last_rank_ = pair.rank;
    last_list_ = &lists_[pair.rank];
    if (last_list_->empty()) {
      list_ranks_.push_back(pair.rank);
      std::ranges::push_heap(list_ranks_, std::greater<>());
    }
  }
  last_list_->push_back(pair.left);
}

std::optional<PairQueue::Pair> PairQueue::pop_from_list() {
  if (open_next_ == open_list_.size() && !open_next_list()) return std::nullopt;
  return Pair{open_rank_, open_list_[open_next_++]};
}

bool PairQueue::open_next_list() {
  if (list_ranks_.empty()) return false;
  std::ranges::pop_heap(list_ranks_, std::greater<>());
  open_rank_ = list_ranks_.back();
  list_ranks_.pop_back();
  auto list = lists_.extract(open_rank_);
  open_list_ = std::move(list.mapped());
  open_next_ = 0;
  last_list_ = nullptr;
  if (!std::ranges::is_sorted(open_list_)) std::ranges::sort(open_list_);
  // What comes for this rank from now on, or for a lower one, goes to the heap.
  list_ranks_begin_ = uint64_t{open_rank_} + 1;
  return true;
}

}  // namespace tandem::text
