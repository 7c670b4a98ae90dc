#pragma once

#include "base/result.h"
#include "transfer/libfabric/handle.h"
#include "transfer/libfabric/options.h"

namespace tandem::transfer {

using LibfabricInfo = LibfabricHandle<fi_info>;

/// How libfabric offers the network. Only offers that suffice count: connection-less endpoints with
/// messages, one-sided writes that are confirmed when delivered, and 32 bits of remote-CQ data.
/// kNotFound, with what there is instead, when there is none.
Result<LibfabricInfo> find_libfabric(const LibfabricOptions& options);

}  // namespace tandem::transfer
