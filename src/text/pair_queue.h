#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

namespace tandem::text {

/// Pairs of neighbours that wait to be merged: the lowest rank first, the leftmost of equals.
///
/// A heap for pieces of a usual length. In a piece of megabytes each pop from a heap walks through
/// memory, so there pairs are kept in one list per rank, which is sorted when its turn comes and
/// then read in order. Both take O(log n) for a push and a pop.
class PairQueue {
 public:
  struct Pair {
    uint32_t rank;
    uint32_t left;  ///< position of the left symbol
    bool operator==(const Pair&) const = default;
  };

  /// Empties it and makes it ready for a piece of so many symbols.
  void reset(uint32_t symbols_count);
  void push(Pair pair) {
    if (pair.rank >= list_ranks_begin_) return push_to_list(pair);
    heap_.push_back(packed(pair));
    std::ranges::push_heap(heap_, std::greater<>());
  }
  /// Nothing when it is empty. The ranks of the heap are all below those of the lists, and an open
  /// list's is between them.
  std::optional<Pair> pop() {
    const bool is_open = open_next_ < open_list_.size();
    if (heap_.empty() && !is_open && list_ranks_.empty()) return std::nullopt;
    if (heap_.empty() || (is_open && open_pair() < heap_.front())) return pop_from_list();
    const uint64_t first = heap_.front();
    std::ranges::pop_heap(heap_, std::greater<>());
    heap_.pop_back();
    return Pair{static_cast<uint32_t>(first >> 32), static_cast<uint32_t>(first)};
  }

 private:
  static uint64_t packed(Pair pair) { return static_cast<uint64_t>(pair.rank) << 32 | pair.left; }
  uint64_t open_pair() const { return packed({open_rank_, open_list_[open_next_]}); }
  void push_to_list(Pair pair);
  std::optional<Pair> pop_from_list();
  bool open_next_list();

  /// A heap of rank << 32 | left: what is below `list_ranks_begin_`.
  std::vector<uint64_t> heap_;
  uint64_t list_ranks_begin_ = 0;
  std::unordered_map<uint32_t, std::vector<uint32_t>> lists_;  // rank -> left symbols
  std::vector<uint32_t> list_ranks_;                           // a heap: the keys of `lists_`
  std::vector<uint32_t>* last_list_ = nullptr;  // that of `last_rank_`; often it is wanted again
  uint32_t last_rank_ = 0;
  std::vector<uint32_t> open_list_;  // sorted; read up to `open_next_`
  size_t open_next_ = 0;
  uint32_t open_rank_ = 0;
};

}  // namespace tandem::text
