#include "cluster/placement.h"

#include <algorithm>
#include <compare>
#include <map>
#include <utility>

namespace tandem::cluster {
namespace {

const char* obstacle(Health health) {
  switch (health) {
    case Health::kServing:
      return nullptr;
    case Health::kDraining:
      return "is draining";
    case Health::kNotReady:
      return "is not ready";
    case Health::kSilent:
      return "does not report";
    case Health::kDead:
      return "is not connected";
  }
  return "is in no known state";
}

uint64_t pages_of(const DecodeRank& rank, uint64_t tokens) {
  return (tokens + rank.page_tokens - 1) / rank.page_tokens;
}

/// The last prompt token is always computed by the decode rank.
uint64_t tokens_before_last(const PlacementRequest& request, uint64_t cached_tokens) {
  return request.prompt_tokens - 1 - std::min(request.prompt_tokens - 1, cached_tokens);
}

/// What is weighed first is first.
struct Cost {
  uint32_t failures;
  uint64_t tokens;
  auto operator<=>(const Cost&) const = default;
};

uint64_t decode_cost(const PlacementRequest& request, const PlacementWeights& weights,
                     const DecodeRank& rank) {
  const uint64_t cached = std::min(rank.cached_tokens, request.prompt_tokens);
  // Pages that it shares with others are held already. The rest of the answer's comes later, and
  // may never be needed.
  const uint64_t wanted = pages_of(rank, request.prompt_tokens + 1) - cached / rank.page_tokens;
  const uint64_t missing = wanted - std::min(wanted, rank.pages_free);
  return rank.requests_waiting * weights.waiting_request + missing * weights.missing_page +
         tokens_before_last(request, cached) / 16 * weights.moved_16_tokens;
}

/// What the decode rank has is not moved, but a prefill worker without it must compute it.
uint64_t prefill_cost(const PlacementRequest& request, const PrefillCandidate& worker) {
  return worker.queued_tokens + tokens_before_last(request, worker.cached_tokens);
}

class Chooser {
 public:
  Chooser(const PlacementRequest& request, const PlacementWeights& weights)
      : request_(request), weights_(weights) {
    for (const Mismatch& mismatch : request.mismatches) {
      mismatches_.emplace(std::pair(mismatch.decode, mismatch.prefill), &mismatch.reason);
    }
  }

  Result<Placement> choose() {
    const size_t count = request_.decode_ranks.size();
    for (size_t i = 0; i < count; ++i) try_rank((i + request_.turn) % count);
    if (best_) return best_->placement;
    if (best_alone_) return best_alone_->placement;
    if (count == 0) note("there is no decode worker");
    if (request_.prefill_workers.empty() && fits_somewhere_) note("there is no prefill worker");
    return make_error(fits_somewhere_ || count == 0 ? Code::kUnavailable : Code::kInvalidArgument,
                      "no worker can serve a prompt of " + std::to_string(request_.prompt_tokens) +
                          " tokens: " + reasons());
  }

 private:
  void try_rank(size_t decode) {
    const DecodeRank& rank = request_.decode_ranks[decode];
    if (const char* why = obstacle(rank.health)) {
      fits_somewhere_ = true;  // as far as is known
      return note(rank.name + " " + why);
    }
    if (rank.page_tokens == 0) {
      fits_somewhere_ = true;
      return note(rank.name + " has not said what it holds");
    }
    if (request_.prompt_tokens >= rank.model_length_max) {
      return note(rank.name + " holds " + std::to_string(rank.model_length_max) +
                  " tokens of prompt and answer together");
    }
    // An answer ends there, however many tokens are asked for.
    const uint64_t tokens =
        std::min<uint64_t>(request_.prompt_tokens + request_.tokens_max, rank.model_length_max);
    const uint64_t pages = pages_of(rank, tokens);
    if (pages > rank.pages_total) {
      return note(rank.name + " has " + std::to_string(rank.pages_total) + " pages, " +
                  std::to_string(pages) + " are needed");
    }
    fits_somewhere_ = true;
    const Cost cost{rank.failures, decode_cost(request_, weights_, rank)};
    if (request_.prompt_tokens == 1) return offer(best_, {decode, std::nullopt}, cost);
    if (tokens_before_last(request_, rank.cached_tokens) == 0) {
      offer(best_alone_, {decode, std::nullopt}, cost);
    }
    const size_t count = request_.prefill_workers.size();
    for (size_t i = 0; i < count; ++i) try_pair(decode, (i + request_.turn) % count, cost);
  }

  void try_pair(size_t decode, size_t prefill, Cost decode_cost) {
    const DecodeRank& rank = request_.decode_ranks[decode];
    const PrefillCandidate& worker = request_.prefill_workers[prefill];
    if (const char* why = obstacle(worker.health)) return note(worker.name + " " + why);
    if (const auto found = mismatches_.find({decode, prefill}); found != mismatches_.end()) {
      return note(worker.name + " does not match " + rank.name + " (" + *found->second + ")");
    }
    offer(best_, {decode, prefill},
          {decode_cost.failures + worker.failures,
           decode_cost.tokens + prefill_cost(request_, worker)});
  }

  struct Offer {
    Placement placement;
    Cost cost;
  };

  /// Of equals the first stays.
  static void offer(std::optional<Offer>& best, Placement placement, Cost cost) {
    if (!best || cost < best->cost) best = Offer{placement, cost};
  }

  /// A worker that serves nobody is named once, not once for each rank.
  void note(const std::string& reason) {
    if (std::find(reasons_.begin(), reasons_.end(), reason) == reasons_.end()) {
      reasons_.push_back(reason);
    }
  }

  std::string reasons() const {
    constexpr size_t kReasonsMax = 16;
    std::string text;
    for (size_t i = 0; i < std::min(reasons_.size(), kReasonsMax); ++i) {
      text += (i == 0 ? "" : "; ") + reasons_[i];
    }
    if (reasons_.size() <= kReasonsMax) return text;
    return text + "; and " + std::to_string(reasons_.size() - kReasonsMax) + " more";
  }

  const PlacementRequest& request_;
  const PlacementWeights& weights_;
  std::map<std::pair<size_t, size_t>, const std::string*> mismatches_;
  std::optional<Offer> best_;
  std::optional<Offer> best_alone_;  ///< without a prefill worker, though the prompt is longer
  bool fits_somewhere_ = false;
  std::vector<std::string> reasons_;
};

}  // namespace

Result<Placement> place(const PlacementRequest& request, const PlacementWeights& weights) {
  return Chooser(request, weights).choose();
}

}  // namespace tandem::cluster
