#pragma once

#include "base/bytes.h"
#include "cluster/wire/fields.h"
#include "engine/status.h"

namespace tandem::cluster::wire {

/// All but its ranks' waits.
void put_status(Writer& writer, const engine::EngineStatus& status, const WireLimits& limits);
engine::EngineStatus take_status(ByteReader& reader, const WireLimits& limits);
/// The fewest bytes of one.
inline constexpr size_t kStatusBytesMin = 97;

}  // namespace tandem::cluster::wire
