#pragma once

#include <cstdint>

#include "base/strong_id.h"

namespace tandem {

/// A row of the embedding table. A plain integer, because tensors of them go to devices.
using TokenId = int32_t;

/// One choice of one client request, unique in a process. A request with n = 3 has three.
using RequestId = StrongId<struct RequestTag, uint64_t>;

/// A page of the KV pools: the same index in every layer's K and V pool of a rank.
using PageId = StrongId<struct PageTag, uint32_t>;

}  // namespace tandem
