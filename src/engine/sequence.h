#pragma once

#include <cstdint>
#include <vector>

#include "engine/ports.h"
#include "engine/request.h"
#include "kv/cache_manager.h"
#include "ops/sample/sample.h"

namespace tandem::engine {

/// A request on its way through the engine. Owned by the engine's thread from acceptance to its
/// last event.
struct Sequence {
  Request request;               ///< its prompt has moved to `tokens`
  EventSink* sink = nullptr;     ///< constant
  std::vector<TokenId> tokens;   ///< prompt, then generated
  uint32_t prompt_tokens = 0;    ///< constant
  uint32_t cached_tokens = 0;    ///< set at the first admission
  uint32_t tokens_computed = 0;  ///< K and V are in the pool; 0 after preemption
  kv::SequenceCache cache;       ///< pages, held while running or awaiting K and V
  ImportId import;               ///< which it awaits, while it does
  bool is_delivered = false;     ///< an export whose pages need no lease

  std::vector<ops::TokenBias> bias;  ///< of the request, in the sampler's form
  ops::SampleRow sample;             ///< refreshed before each draw

  int64_t submitted_us = 0;
  int64_t scheduled_us = 0;    ///< first time in a step, 0 before
  int64_t first_token_us = 0;  ///< 0 before

  bool finished = false;    ///< its last event is made; dropped when that is emitted
  uint64_t event_turn = 0;  ///< the turn in which it last had an event
  size_t event_index = 0;   ///< which one, in that turn

  bool is_export() const { return request.kv_way == KvWay::kExport; }
  /// Positions whose K and V it needs to go on.
  uint32_t tokens_wanted() const { return static_cast<uint32_t>(tokens.size()) - is_export(); }
  uint32_t generated_tokens() const { return static_cast<uint32_t>(tokens.size()) - prompt_tokens; }
};

}  // namespace tandem::engine
