#include "comm/expert_placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace tandem::comm {

Result<ExpertPlacement> ExpertPlacement::initial(const Shape& shape) {
  const int64_t ranks = shape.ranks_count;
  const int64_t experts = shape.experts_count;
  const int64_t least = std::max<int64_t>(0, ranks - experts);
  const int64_t most = experts * (ranks - 1);
  if (ranks < 1 || experts < 1 || shape.redundant_count < least || shape.redundant_count > most) {
    const std::string reason =
        shape.redundant_count < least
            ? fmt::format(
                  "some would have none; use at most {} expert-parallel ranks, or at least "
                  "--num-redundant-experts {}",
                  experts, least)
            : fmt::format("some would hold an expert twice; use at most --num-redundant-experts {}",
                          most);
    const std::string copies = shape.redundant_count == 0
                                   ? ""
                                   : fmt::format(" and {} redundant ones", shape.redundant_count);
    return make_error(Code::kInvalidArgument,
                      fmt::format("{} experts{} on {} ranks: {}", experts, copies, ranks, reason));
  }
  auto slots = TANDEM_TRY(
      ExpertRanges::balanced(shape.experts_count + shape.redundant_count, shape.ranks_count));
  std::vector<int32_t> held(static_cast<size_t>(slots.experts_count()));
  for (size_t i = 0; i < held.size(); ++i) held[i] = static_cast<int32_t>(i) % shape.experts_count;
  return ExpertPlacement(std::move(slots), shape.experts_count, std::move(held));
}

Result<ExpertPlacement> ExpertPlacement::of(int32_t experts_count,
                                            std::span<const std::vector<int32_t>> held) {
  std::vector<int32_t> counts;
  std::vector<int32_t> experts;
  for (size_t rank = 0; rank < held.size(); ++rank) {
    counts.push_back(static_cast<int32_t>(held[rank].size()));
    std::vector<bool> seen(static_cast<size_t>(experts_count));
    for (const int32_t expert : held[rank]) {
      const bool is_known = expert >= 0 && expert < experts_count;
      if (expert != kNone && (!is_known || seen[static_cast<size_t>(expert)])) {
        return make_error(Code::kDataLoss,
                          fmt::format("rank {} says that it holds expert {} of {}, or twice", rank,
                                      expert, experts_count));
      }
      if (is_known) seen[static_cast<size_t>(expert)] = true;
      experts.push_back(expert);
    }
  }
  return ExpertPlacement(ExpertRanges::of_counts(counts), experts_count, std::move(experts));
}

ExpertPlacement ExpertPlacement::holding(std::vector<int32_t> experts) const {
  TANDEM_CHECK(experts.size() == experts_.size(), "an expert or none for every slot");
  return ExpertPlacement(slots_, experts_count_, std::move(experts));
}

ExpertPlacement::ExpertPlacement(ExpertRanges slots, int32_t experts_count,
                                 std::vector<int32_t> experts)
    : slots_(std::move(slots)), experts_count_(experts_count), experts_(std::move(experts)) {
  const size_t places = place(ranks_count(), 0);
  slot_of_.assign(places, kNone);
  server_.assign(places, kNone);
  for (int rank = 0; rank < ranks_count(); ++rank) {
    const auto held = experts_of(rank);
    for (size_t slot = 0; slot < held.size(); ++slot) {
      if (held[slot] == kNone) continue;
      TANDEM_CHECK(held[slot] >= 0 && held[slot] < experts_count_, "an expert of the layer");
      TANDEM_CHECK(!holds(rank, held[slot]), "no rank holds an expert twice");
      slot_of_[place(rank, held[slot])] = static_cast<int32_t>(slot);
    }
  }
  for (int32_t expert = 0; expert < experts_count_; ++expert) choose_servers(expert);
}

int ExpertPlacement::copies_count(int32_t expert) const {
  int count = 0;
  for (int rank = 0; rank < ranks_count(); ++rank) count += holds(rank, expert) ? 1 : 0;
  return count;
}

void ExpertPlacement::choose_servers(int32_t expert) {
  std::vector<int> holders;
  for (int rank = 0; rank < ranks_count(); ++rank) {
    if (holds(rank, expert)) holders.push_back(rank);
  }
  if (holders.empty()) {
    lacks_experts_ = true;
    return;
  }
  // Experts begin with different holders, so that what is left over of a round spreads too.
  size_t turn = static_cast<size_t>(expert);
  for (int source = 0; source < ranks_count(); ++source) {
    const bool is_holder = holds(source, expert);
    server_[place(source, expert)] = is_holder ? source : holders[turn++ % holders.size()];
  }
}

}  // namespace tandem::comm
