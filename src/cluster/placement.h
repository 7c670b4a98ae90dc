#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace tandem::cluster {

/// What speaks against giving a worker new work. Not ready: by its own word. Silent: connected, but
/// it does not say how it is. Dead: not connected, or not the life that is listed.
enum class Health : uint8_t { kServing, kDraining, kNotReady, kSilent, kDead };

/// A rank that generates, as the router sees it now.
struct DecodeRank {
  std::string name;  ///< for messages: "d0 rank 2"
  Health health = Health::kServing;
  uint32_t page_tokens = 0;       ///< 0: it has not said so yet
  uint32_t model_length_max = 0;  ///< prompt and answer together; an answer ends there
  uint64_t pages_total = 0;
  uint64_t pages_free = 0;        ///< less what was sent to it since it said so
  uint32_t requests_waiting = 0;  ///< queued there, not running
  uint64_t cached_tokens = 0;     ///< of this prompt, by PrefixAffinity
  uint32_t failures = 0;          ///< attempts at this request that came to nothing there
};

/// A worker that computes prompts, as the router sees it now.
struct PrefillCandidate {
  std::string name;
  Health health = Health::kServing;
  uint64_t queued_tokens = 0;  ///< to compute, with what was sent to it since it said so
  uint64_t cached_tokens = 0;  ///< of this prompt, by PrefixAffinity
  uint32_t failures = 0;       ///< attempts at this request that came to nothing with it
};

/// A pair whose handshake failed, and why: "page dtype: bf16 here, f32 there".
struct Mismatch {
  size_t decode;
  size_t prefill;
  std::string reason;
};

struct PlacementRequest {
  uint64_t prompt_tokens = 0;  ///< >= 1
  uint64_t tokens_max = 0;     ///< to generate at most
  std::span<const DecodeRank> decode_ranks;
  std::span<const PrefillCandidate> prefill_workers;
  std::span<const Mismatch> mismatches;
  uint64_t turn = 0;  ///< of equals, another one is first with each turn
};

/// Prices in tokens of prefill, the unit in which all is weighed.
struct PlacementWeights {
  uint64_t waiting_request = 512;  ///< one that waits at a decode rank
  uint64_t missing_page = 64;      ///< one that must become free first
  uint64_t moved_16_tokens = 1;    ///< that the decode rank does not have yet
};

struct Placement {
  size_t decode = 0;
  /// Nothing: the prompt has one token, which the decode rank computes; or no prefill worker may
  /// serve, and the rank is believed to have all but the last.
  std::optional<size_t> prefill;
};

/// Chooses where a request goes: of the pairs with the fewest failures the one of least cost, where
/// cost counts the prompt tokens that are queued before it, have to be computed or moved, requests
/// that wait, and pages that are missing. A pure function.
///
/// A rank that is believed to have the whole prompt gets a prefill worker nevertheless, as it may
/// have evicted it; it asks only for what it does not have.
///
/// kUnavailable when nobody may serve it now; kInvalidArgument when it fits no decode rank even
/// when that is empty. Both say of the workers what speaks against them.
Result<Placement> place(const PlacementRequest& request, const PlacementWeights& weights = {});

}  // namespace tandem::cluster
