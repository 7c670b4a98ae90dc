#pragma once

#include "base/bytes.h"
#include "cluster/wire/fields.h"
#include "engine/request.h"

namespace tandem::cluster::wire {

/// Whether a worker will understand the request: lists and texts within the limits, a prompt, known
/// token ids, finite numbers. kInvalidArgument names the field. What engines refuse is their
/// business.
Result<void> check(const engine::Request& request, const WireLimits& limits);

/// `request` must have passed check().
void put_request(Writer& writer, const engine::Request& request);
engine::Request take_request(ByteReader& reader, const WireLimits& limits);

/// Of its error code and text travel, not the line of code.
void put_event(Writer& writer, const engine::Event& event, const WireLimits& limits);
/// An error comes with kError and never without.
engine::Event take_event(ByteReader& reader, const WireLimits& limits);

}  // namespace tandem::cluster::wire
