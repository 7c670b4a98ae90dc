#pragma once

#include <vector>

#include "transfer/rail.h"

namespace tandem::transfer {

/// An event of a rail that is told later: what RailEvents has as calls. Only the fields of its
/// kind have a meaning.
struct RailEvent {
  enum class Kind { kPostEnded, kImmediate, kMessage, kRegionClosed, kPeerClosed, kRailFailed };

  Kind kind = Kind::kPostEnded;
  uint64_t token = 0;
  RailOutcome outcome = RailOutcome::kDelivered;
  uint32_t immediate = 0;
  RailRegionId region;
  RailPeerId peer;
  Error error;
  std::vector<std::byte> message;
};

/// Makes the call that the event stands for.
void tell(const RailEvent& event, RailEvents& events);

}  // namespace tandem::transfer
