#pragma once

#include <compare>
#include <cstdint>

#include "base/strong_id.h"

namespace tandem::cluster::handoff {

/// One decoder process, one prefiller process and one registration of the decoder's pools for that
/// peer. A random number that the handshake makes; closed once, never opened again.
using LinkId = StrongId<struct LinkTag, uint64_t>;

/// One hand-off of a link. A slot is a place to count in; its epoch grows with every use.
struct Key {
  uint16_t slot = 0;
  uint64_t epoch = 0;
  auto operator<=>(const Key&) const = default;
};

/// What every write of a hand-off carries and the decoder counts: slot << 16 | low half of epoch.
using Immediate = StrongId<struct ImmediateTag, uint32_t>;

constexpr Immediate immediate_of(Key key) {
  return {static_cast<uint32_t>(key.slot) << 16 | static_cast<uint16_t>(key.epoch)};
}

}  // namespace tandem::cluster::handoff
