#include "comm/plan_experts.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace tandem::comm {
namespace {

constexpr int32_t kNone = ExpertPlacement::kNone;
constexpr double kGoodEnough = 33.0 / 32.0;
constexpr double kRounding = 1e-9;  // of the mean: differences below it are those of sums

/// A placement while it changes. Ties go to the lower number everywhere.
class Planner {
 public:
  Planner(const ExpertPlacement& current, std::span<const uint64_t> loads)
      : current_(current), loads_(loads) {
    copies_.resize(loads.size());
    for (int rank = 0; rank < current.ranks_count(); ++rank) {
      const auto held = current.experts_of(rank);
      held_.emplace_back(held.begin(), held.end());
      ranks_.push_back(rank);
    }
    for (size_t e = 0; e < loads.size(); ++e) {
      copies_[e] = current.copies_count(static_cast<int32_t>(e));
    }
  }

  ExpertPlacement plan() {
    while (improve_copies()) {
    }
    while (improve_ranks()) {
    }
    return current_.holding(in_old_slots());
  }

 private:
  double load(int32_t expert) const {
    return static_cast<double>(loads_[static_cast<size_t>(expert)]);
  }
  int copies(int32_t expert) const { return copies_[static_cast<size_t>(expert)]; }
  double share(int32_t expert) const { return load(expert) / copies(expert); }
  std::vector<int32_t>& held(int rank) { return held_[static_cast<size_t>(rank)]; }
  const std::vector<int32_t>& held(int rank) const { return held_[static_cast<size_t>(rank)]; }
  bool holds(int rank, int32_t expert) const {
    return std::ranges::find(held(rank), expert) != held(rank).end();
  }
  double rank_load(int rank) const {
    double sum = 0;
    for (int32_t expert : held(rank)) sum += expert == kNone ? 0 : share(expert);
    return sum;
  }

  /// Of those that could be on one more rank: lost ones first, then by share.
  int32_t neediest() const {
    int32_t best = kNone;
    const auto needs_more = [&](int32_t a, int32_t b) {
      if ((copies(a) == 0) != (copies(b) == 0)) return copies(a) == 0;
      return copies(a) == 0 ? load(a) > load(b) : share(a) > share(b);
    };
    for (int32_t e = 0; e < static_cast<int32_t>(copies_.size()); ++e) {
      if (copies(e) == static_cast<int>(ranks_.size())) continue;
      if (best == kNone || needs_more(e, best)) best = e;
    }
    return best;
  }

  /// The expert with several copies whose share grows to the least when it gives one up.
  int32_t giver() const {
    int32_t best = kNone;
    const auto share_after = [&](int32_t e) { return load(e) / (copies(e) - 1); };
    for (int32_t e = 0; e < static_cast<int32_t>(copies_.size()); ++e) {
      if (copies(e) < 2) continue;
      if (best == kNone || share_after(e) < share_after(best)) best = e;
    }
    return best;
  }

  bool improve_copies() {
    const int32_t taker = neediest();
    if (taker == kNone) return false;
    const bool has_room = std::ranges::any_of(ranks_, [&](int rank) { return holds(rank, kNone); });
    if (!has_room) {
      const int32_t from = giver();
      if (from == kNone) return false;
      const double grown = load(from) / (copies(from) - 1);
      if (copies(taker) > 0 && grown >= share(taker)) return false;
      drop(from, taker);
    }
    add(taker);
    return true;
  }

  void replace(int rank, int32_t old_expert, int32_t new_expert) {
    *std::ranges::find(held(rank), old_expert) = new_expert;
  }

  /// From the fullest of its ranks, if possible one where `taker` is not.
  void drop(int32_t expert, int32_t taker) {
    int best = -1;
    const auto suits_more = [&](int a, int b) {
      if (holds(a, taker) != holds(b, taker)) return holds(b, taker);
      return rank_load(a) > rank_load(b);
    };
    for (int rank : ranks_) {
      if (holds(rank, expert) && (best < 0 || suits_more(rank, best))) best = rank;
    }
    replace(best, expert, kNone);
    --copies_[static_cast<size_t>(expert)];
  }

  /// To the emptiest rank with room. If all that have room hold it already, one of them takes
  /// another expert off a rank that does not: since slots per rank differ by one at most, that rank
  /// has one which the first lacks.
  void add(int32_t expert) {
    int with_room = -1;
    int without_it = -1;
    const auto is_emptier = [&](int rank, int best) {
      return best < 0 || rank_load(rank) < rank_load(best);
    };
    for (int rank : ranks_) {
      if (!holds(rank, expert) && is_emptier(rank, without_it)) without_it = rank;
      const bool fits = holds(rank, kNone) && !holds(rank, expert);
      if (fits && is_emptier(rank, with_room)) with_room = rank;
    }
    if (with_room < 0) {
      const int holder = *std::ranges::find_if(ranks_, [&](int r) { return holds(r, kNone); });
      const int32_t moving = *std::ranges::find_if(
          held(without_it), [&](int32_t other) { return !holds(holder, other); });
      replace(holder, kNone, moving);
      replace(without_it, moving, kNone);
      with_room = without_it;
    }
    replace(with_room, kNone, expert);
    ++copies_[static_cast<size_t>(expert)];
  }

  bool improve_ranks() {
    std::vector<double> of_rank(held_.size());
    for (int rank : ranks_) of_rank[static_cast<size_t>(rank)] = rank_load(rank);
    const auto load_of = [&](int rank) { return of_rank[static_cast<size_t>(rank)]; };
    std::vector<int> by_load = ranks_;
    std::ranges::stable_sort(by_load, [&](int a, int b) { return load_of(a) < load_of(b); });
    const double most = load_of(by_load.back());
    const double sum = std::accumulate(of_rank.begin(), of_rank.end(), 0.0);
    const double mean = sum / static_cast<double>(ranks_.size());
    if (most <= mean * kGoodEnough) return false;
    const double rounding = mean * kRounding;
    for (int full : ranks_) {
      if (load_of(full) < most - rounding) continue;
      for (int other : by_load) {
        if (try_swap(full, other, load_of(full) - load_of(other), rounding)) return true;
      }
    }
    return false;
  }

  /// The swap that makes the loads most equal, if one does. Both ranks' squares shrink in sum with
  /// every swap, so swaps end.
  bool try_swap(int full, int other, double gap, double rounding) {
    double best = rounding;
    int32_t away = kNone;
    int32_t back = kNone;
    for (int32_t a : held(full)) {
      if (a == kNone || holds(other, a)) continue;
      for (int32_t b : held(other)) {
        if (b == kNone || holds(full, b)) continue;
        const double moved = share(a) - share(b);
        const double gain = std::min(moved, gap - moved);
        if (gain <= best) continue;
        best = gain;
        away = a;
        back = b;
      }
    }
    if (away == kNone) return false;
    replace(full, away, back);
    replace(other, back, away);
    return true;
  }

  /// What stays on its rank stays where it was; the rest fills up the other slots.
  std::vector<int32_t> in_old_slots() const {
    std::vector<int32_t> slots;
    for (int rank = 0; rank < current_.ranks_count(); ++rank) {
      const auto old = current_.experts_of(rank);
      std::vector<int32_t> arrived;
      for (int32_t expert : held(rank)) {
        if (expert != kNone && !current_.holds(rank, expert)) arrived.push_back(expert);
      }
      std::ranges::sort(arrived);
      auto next = arrived.begin();
      for (int32_t expert : old) {
        const bool stays = expert != kNone && holds(rank, expert);
        const int32_t other = stays || next == arrived.end() ? kNone : *next++;
        slots.push_back(stays ? expert : other);
      }
    }
    return slots;
  }

  const ExpertPlacement& current_;
  const std::span<const uint64_t> loads_;
  std::vector<int> ranks_;                  // all
  std::vector<std::vector<int32_t>> held_;  // [ranks][slots]
  std::vector<int> copies_;                 // [experts]
};

}  // namespace

std::vector<double> rank_loads(const ExpertPlacement& placement, std::span<const uint64_t> loads) {
  std::vector<double> sums(static_cast<size_t>(placement.ranks_count()));
  for (int rank = 0; rank < placement.ranks_count(); ++rank) {
    for (int32_t expert : placement.experts_of(rank)) {
      if (expert == kNone) continue;
      sums[static_cast<size_t>(rank)] +=
          static_cast<double>(loads[static_cast<size_t>(expert)]) / placement.copies_count(expert);
    }
  }
  return sums;
}

double balance_of(std::span<const double> rank_loads) {
  double sum = 0;
  double most = 0;
  for (const double load : rank_loads) {
    sum += load;
    most = std::max(most, load);
  }
  return most == 0 ? 1 : sum / static_cast<double>(rank_loads.size()) / most;
}

ExpertPlacement plan_experts(const ExpertPlacement& current, std::span<const uint64_t> loads) {
  TANDEM_CHECK(loads.size() == static_cast<size_t>(current.experts_count()), "a load per expert");
  if (std::ranges::all_of(loads, [](uint64_t load) { return load == 0; })) return current;
  return Planner(current, loads).plan();
}

int moved_slots(const ExpertPlacement& before, const ExpertPlacement& after) {
  int count = 0;
  for (size_t i = 0; i < after.experts().size(); ++i) {
    const int32_t expert = after.experts()[i];
    if (expert != kNone && expert != before.experts()[i]) ++count;
  }
  return count;
}

}  // namespace tandem::comm
